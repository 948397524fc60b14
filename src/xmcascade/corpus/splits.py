"""Which documents go to which part: by a hash of a key, so that neither their order nor chance has a say."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from xmcascade.errors import DataError, SettingError

__all__ = ["near_duplicate_key", "part_of_groups"]

_NOT_A_LETTER = re.compile(r"[\W\d_]+")
_ASCII_LETTERS = bytes(
    ord(chr(i).lower()) if chr(i).isascii() and chr(i).isalpha() else 32 for i in range(256)
)


def near_duplicate_key(text: str) -> str:
    """What two texts share when they differ only in case, digits, spaces or punctuation.

    >>> near_duplicate_key("Vol. 2: The  Sea!") == near_duplicate_key("vol 17 the sea")
    True
    """
    if text.isascii():  # the same, ten times as fast
        key = b" ".join(text.encode().translate(_ASCII_LETTERS).split()).decode()
    else:
        key = _NOT_A_LETTER.sub(" ", text.casefold()).strip()
    return key or text  # numbers and signs alone: all they have


def part_of_groups(keys: Iterable[object], n_docs: int, fraction: float, seed: int) -> npt.NDArray[np.bool_]:
    """Which documents are in the part of this fraction; those with the same key are on the same side.

    >>> part_of_groups(["a", "a", "b", "c"], 4, 0.5, seed=0).sum()
    np.int64(2)
    """
    if not 0 < fraction < 1:
        raise SettingError(f"fraction is {fraction}", remedy="use a number between 0 and 1")
    if not -(2**63) <= seed < 2**63:
        raise SettingError(f"seed is {seed}", remedy="use a 64-bit integer")
    salt = int(seed).to_bytes(8, "little", signed=True)
    hashes = np.empty(n_docs, dtype=np.uint64)
    for i, key in enumerate(keys):
        raw = str(key).encode("utf-8", "surrogatepass")
        hashes[i] = int.from_bytes(hashlib.blake2b(raw, digest_size=8, key=salt).digest(), "little")
    # Groups in the order of their hash; the part takes every whole group that fits, until it has its share.
    _, group, sizes = np.unique(hashes, return_inverse=True, return_counts=True)
    chosen = np.zeros(len(sizes), dtype=bool)
    room = fraction * n_docs
    for i, size in enumerate(sizes.tolist()):
        if size / 2 <= room:
            chosen[i] = True
            room -= size
        if room < 0.5:
            break
    in_part: npt.NDArray[np.bool_] = chosen[group]
    if in_part.all() or not in_part.any():
        groups = f"{len(sizes):,} groups" if len(sizes) > 1 else "the one group"
        raise DataError(
            f"{groups} of {n_docs:,} documents with the same key cannot be cut at {fraction}",
            remedy='use another fraction or key; key="none" lets near-duplicates part',
        )
    return in_part
