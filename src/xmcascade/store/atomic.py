"""A folder that appears whole or not at all.

It is written under another name beside its place, flushed to the disk, and then takes its place in one system
call, so that a reader, a crash or a full disk finds the old folder or the new one and never a mix.
"""

from __future__ import annotations

import ctypes
import errno
import logging
import os
import re
import secrets
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["UNFINISHED", "discard", "leftovers", "replacing"]

log = logging.getLogger("xmcascade")

DAY = (
    24 * 3600.0
)  # seconds; nothing takes this long to save, so an older unfinished folder has lost its writer
UNFINISHED = re.compile(r"\..+\.(saving|replaced)-[0-9a-f]{12}")  # names of what killed savers leave
_EXCHANGE = 2  # RENAME_EXCHANGE on Linux and RENAME_SWAP on macOS happen to be the same number
_AT_FDCWD = -100
_UNSUPPORTED = {errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP}
_OCCUPIED = {errno.EEXIST, errno.ENOTEMPTY}


@contextmanager
def replacing(target: Path, check: Callable[[Path], None] = lambda _: None) -> Iterator[Path]:
    """Give a new folder to write in; on leaving it takes the target's place, on any failure it is removed.

    `check` raises when what now stands at the target must not be replaced; it is called before writing and
    just before publishing. Files in the folder are flushed to the disk by who writes them.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as parent:
    ...     with replacing(Path(parent) / "greetings") as new:
    ...         _ = (new / "hello.txt").write_text("hello")
    ...     [path.name for path in Path(parent).rglob("*")]
    ['greetings', 'hello.txt']
    """
    target = target.resolve()  # a link to a folder stays a link: the folder behind it is replaced
    check(target)
    missing = [parent for parent in target.parents if not parent.exists()]
    target.parent.mkdir(parents=True, exist_ok=True)
    _sweep(target, "saving")
    new = _sibling(target, "saving")
    new.mkdir()
    try:
        yield new
        _sync(new)
        check(target)
        _swap(new, target)
        try:
            for folder in [target.parent, *[parent.parent for parent in missing]]:
                _sync(folder)
        except BaseException:
            _unswap(new, target)
            raise
    finally:
        _remove(new)  # the unfinished folder after a failure, the old one after a success
    _sweep(target, "replaced")


def discard(target: Path) -> None:
    """Delete a folder that nobody may find half deleted: in one step it becomes an unfinished one."""
    gone = _sibling(target, "saving")
    target.rename(gone)
    _remove(gone)


def leftovers(target: Path, word: str) -> list[Path]:
    """Folders that killed savers left beside the target: "saving" (unfinished or outdated) or "replaced".

    A "replaced" one is the old content moved aside, where the file system cannot exchange two folders.
    """
    pattern = re.compile(rf"\.{re.escape(target.name)}\.{word}-[0-9a-f]{{12}}")
    try:
        return sorted(path for path in target.parent.iterdir() if pattern.fullmatch(path.name))
    except OSError:
        return []


def _sync(folder: Path) -> None:
    """Flush the names in a folder to the disk."""
    if os.name == "nt":  # cannot, and needs not
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in _UNSUPPORTED:  # some network file systems know no such thing; then we go on
            raise
    finally:
        os.close(handle)


def _sibling(target: Path, word: str) -> Path:
    return target.with_name(f".{target.name}.{word}-{secrets.token_hex(6)}")


def _sweep(target: Path, word: str) -> None:
    for path in leftovers(target, word):
        try:
            old = time.time() - path.stat().st_mtime > DAY
        except OSError:  # another saver finished and removed it
            continue
        if old:
            _remove(path)


def _remove(folder: Path) -> None:
    try:
        shutil.rmtree(folder)
    except FileNotFoundError:
        pass
    except OSError as error:
        log.warning("could not remove %s: %s. Remedy: delete this folder by hand", folder, error)


def _swap(new: Path, target: Path) -> None:
    """Put `new` at the target; what was there, if anything, is then at `new`."""
    for _ in range(10):  # the target may come and go under our hands when others save to it too
        try:
            if not target.exists():
                new.rename(target)
            elif not _exchange(new, target):
                _swap_by_renames(new, target)
            return
        except OSError as error:
            if error.errno not in _OCCUPIED and not (error.errno == errno.ENOENT and new.exists()):
                raise
    raise OSError(errno.EBUSY, "others keep replacing this folder", str(target))


def _unswap(new: Path, target: Path) -> None:
    if new.exists():
        _swap(new, target)
    else:
        target.rename(new)


def _exchange(one: Path, other: Path) -> bool:
    """Exchange two folders in one system call; False where that is not possible."""
    function = _exchange_function()
    if function is None:
        return False
    paths = os.fsencode(one), os.fsencode(other)
    arguments = (_AT_FDCWD, paths[0], _AT_FDCWD, paths[1]) if sys.platform == "linux" else paths
    if function(*arguments, _EXCHANGE) == 0:
        return True
    number = ctypes.get_errno()
    if number in _UNSUPPORTED:
        return False
    raise OSError(number, os.strerror(number), str(other))


def _exchange_function() -> Callable[..., int] | None:
    name = {"linux": "renameat2", "darwin": "renamex_np"}.get(sys.platform)
    if name is None:
        return None
    function = getattr(ctypes.CDLL(None, use_errno=True), name, None)
    if function is not None:
        path = ctypes.c_char_p
        linux = [ctypes.c_int, path, ctypes.c_int, path, ctypes.c_uint]
        function.argtypes = linux if name == "renameat2" else [path, path, ctypes.c_uint]
    return function


def _swap_by_renames(new: Path, target: Path) -> None:
    # For an instant there is nothing at the target; readers that see the old folder moved aside wait.
    aside = _sibling(target, "replaced")
    target.rename(aside)
    try:
        new.rename(target)
        aside.rename(new)
    except BaseException:
        if aside.exists():
            if not new.exists():
                target.rename(new)
            aside.rename(target)
        raise
