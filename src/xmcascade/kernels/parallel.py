"""Threads over blocks of work: every kernel releases the GIL, so plain threads are all that is needed.

No pool outlives a call: nothing to break in a forked child, nothing shared between concurrent callers.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import numpy.typing as npt

from xmcascade.errors import SettingError

__all__ = ["blocks", "read_only", "run", "thread_count"]

T = TypeVar("T")
R = TypeVar("R")


def thread_count(threads: int | None = None) -> int:
    """Threads to use: the argument, else $XMCASCADE_THREADS, else the cores this process may use.

    >>> thread_count(3)
    3
    """
    if threads is None:
        asked = os.environ.get("XMCASCADE_THREADS", "")
        if not asked:
            return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        if not asked.isdecimal() or int(asked) < 1:
            raise SettingError(f"XMCASCADE_THREADS is {asked!r}", remedy="set it to a number from 1 up")
        threads = int(asked)
    if isinstance(threads, bool) or not isinstance(threads, int) or threads < 1:
        raise SettingError(f"threads is {threads!r}", remedy="use a number from 1 up, or None for all cores")
    return threads


def blocks(n: int, size: int) -> list[tuple[int, int]]:
    """The ranges that cut 0..n into blocks of one size.

    >>> blocks(5, 2)
    [(0, 2), (2, 4), (4, 5)]
    """
    return [(lo, min(lo + size, n)) for lo in range(0, n, size)]


def read_only(*arrays: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], ...]:
    """Views that cannot be written to: a kernel is compiled once for fresh arrays and for mapped ones.

    >>> import numpy as np
    >>> read_only(np.zeros(2))[0].flags.writeable
    False
    """
    views = tuple(array.view() for array in arrays)
    for view in views:
        view.flags.writeable = False
    return views


def run(work: Callable[[T], R], items: Sequence[T], threads: int | None = None) -> Iterator[R]:
    """Yield work(item) for each item, in order, computed by several threads.

    >>> list(run(abs, [-1, 2, -3], threads=2))
    [1, 2, 3]
    """
    n_threads = min(thread_count(threads), len(items))
    if n_threads <= 1:
        yield from map(work, items)
        return
    with ThreadPoolExecutor(n_threads) as pool:
        try:
            yield from pool.map(work, items)
        finally:  # an error or Ctrl-C must not wait for the blocks that have not begun
            pool.shutdown(wait=True, cancel_futures=True)
