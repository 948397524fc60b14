"""One dial: what is derived from the number of labels, documents, encoder layers and tokens, with reasons.

The rules follow Table 9 of the CascadeXML paper (its own values are presets) and go on to any size.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import resource
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from xmcascade.neural.extra import torch
from xmcascade.neural.heads import RowOptimizer

__all__ = [
    "Arithmetic", "Effort", "Memory", "arithmetic", "cluster_levels", "dropouts", "epochs", "layers_read",
    "one_level", "powers", "precision", "resident_bytes", "row_optimizer", "short_tokens", "shortlists",
    "start_share",
]  # fmt: skip

Arithmetic = Literal["float32", "bfloat16"]
Effort = Literal["fast", "balanced", "best"]

CANDIDATES = 1024  # scored at the second level; twice as many at each further one
NO_TREE = 2000  # labels; below, every one is scored for every document
LABELS_A_CLUSTER = 6.5  # at least, at the finest level of clusters
MOST_CLUSTERS, MOST_FIRST, ARITY = 2**16, 2**10, 8
MOST_TOKENS_A_DOCUMENT = 128
MOST_TOKENS = 7_250_000  # read in a training run by default: about 80 minutes of MiniLM on two cores
EFFORTS = {"fast": 0.05, "balanced": 1.0, "best": 3.0}  # parts of that
ENOUGH_EPOCHS, ENOUGH_TOKENS = 3, 4_750_000  # passes that are enough, if they read so much
SHORT_TOKENS, SHORT_GAIN = 64, 1.25  # long documents are first read so far, if that is so much less to read
START_TOKENS, START_PART = 1_500_000, 0.3  # to start heads: read at least; and of the tokens of training
START_LEAST = 0.2  # of the former, with less effort
NARROW = 128  # an encoder's width, below which to round its numbers takes longer than to multiply them
MOST_ROWS = 2 * 2**30  # bytes of rows as float32, from which on they are kept as bfloat16


def cluster_levels(n_labels: int) -> tuple[int, ...]:
    """Clusters of each level, coarsest first; none for few labels.

    >>> [cluster_levels(n) for n in (1_000, 4_000, 13_330, 30_938, 670_091)]
    [(), (512,), (256, 2048), (512, 4096), (1024, 8192, 65536)]
    """
    if n_labels < NO_TREE:
        return ()
    finest = min(MOST_CLUSTERS, 2 ** int(math.log2(n_labels / LABELS_A_CLUSTER)))
    levels = [finest]
    while levels[0] > MOST_FIRST:
        levels.insert(0, levels[0] // ARITY)
    return tuple(levels)


def one_level(n_labels: int) -> tuple[int, ...]:
    """One level of clusters of at most 100 labels (LightXML); none for few labels.

    >>> one_level(1_000), one_level(13_330), one_level(670_091)
    ((), (256,), (8192,))
    """
    return (2 ** math.ceil(math.log2(n_labels / 100)),) if n_labels >= NO_TREE else ()


def layers_read(n_levels: int, n_layers: int) -> tuple[tuple[int, ...], ...]:
    """The encoder layers each level reads: the last one the last, coarser ones evenly before; the first two.

    >>> layers_read(4, 12), layers_read(3, 6), layers_read(1, 6)
    (((5, 6), (8,), (10,), (12,)), ((3, 4), (5,), (6,)), ((6,),))
    """
    apart = max(1, round(n_layers / 6))
    tops = [max(1, n_layers - apart * i) for i in range(n_levels)][::-1]
    reads: list[tuple[int, ...]] = [(top,) for top in tops]
    if n_levels > 1 and tops[0] > 1:
        reads[0] = (tops[0] - 1, tops[0])
    return tuple(reads)


def shortlists(sizes: Sequence[int]) -> tuple[int, ...]:
    """Clusters of each level whose children are scored, for a tree with these sizes.

    They have about 1,024 children, at the next level 2,048, then 4,096.

    >>> shortlists([512, 4096, 30938]), shortlists([1024, 8192, 65536, 670091]), shortlists([100])
    ((128, 271), (128, 256, 400), ())
    >>> shortlists([1024, 8192, 65536, 2812281])
    (128, 256, 95)
    """
    children = [low / high for high, low in pairwise(sizes)]
    wanted = [int(CANDIDATES * 2**t / each) for t, each in enumerate(children)]
    return tuple(max(1, min(size, keep)) for size, keep in zip(sizes[:-1], wanted, strict=True))


def dropouts(n_levels: int) -> tuple[float, ...]:
    """Dropout of each level's features.

    >>> dropouts(3)
    (0.0, 0.0, 0.0)
    """
    return (0.0,) * n_levels


def epochs(n_tokens: int, n_docs: int, effort: Effort = "balanced") -> tuple[float, str]:
    """Passes over the documents, and why: quarters, or whole ones where they are many.

    >>> epochs(1_450_000, 70_000)[0], epochs(3_400_000, 45_000)[0], epochs(2_000, 100)[0]
    (3.0, 2.25, 30.0)
    >>> epochs(1_450_000, 70_000, "fast")[0], epochs(1_450_000, 70_000, "best")[0]
    (0.25, 10.0)
    """
    most, enough, least = (EFFORTS[effort] * part for part in (MOST_TOKENS, ENOUGH_TOKENS, 1.0))
    passes = ENOUGH_EPOCHS * max(1.0, EFFORTS[effort])
    wanted = most / max(n_tokens, 1)
    if wanted > passes:
        wanted = max(passes, round(enough / max(n_tokens, 1)))
    chosen = min(max(min(least, 1.0), round(4 * wanted) / 4), 30.0)
    return chosen, f"{n_tokens:,} tokens in {n_docs:,} documents; at most about {most:,.0f} are read"


def short_tokens(lengths: npt.NDArray[np.int64]) -> tuple[int, str]:
    """Where documents of these lengths are cut for most of training; 0: nowhere; and why.

    Most of what a long text is about is said at its beginning, and twice the documents are read in the time.

    >>> short_tokens(np.array([128, 100]))[0], short_tokens(np.array([20, 70]))[0]
    (64, 0)
    """
    part = float(np.minimum(lengths, SHORT_TOKENS).sum() / max(lengths.sum(), 1))
    reason = f"the first {SHORT_TOKENS} tokens of documents are {part:.0%} of all"
    return (SHORT_TOKENS if part * SHORT_GAIN < 1 else 0), reason


def start_share(n_tokens: int, epochs: float, effort: Effort = "balanced") -> float:
    """The share of the documents whose features start the heads: reading them is to take little of the time.

    >>> start_share(1_000_000, 3), round(start_share(2_800_000, 1.5), 2), start_share(1_000_000, 0.5, "fast")
    (1.0, 0.54, 0.3)
    """
    least = START_TOKENS * min(1.0, max(START_LEAST, EFFORTS[effort]))
    return min(1.0, max(least, START_PART * epochs * n_tokens) / max(n_tokens, 1))


def powers(mode: str, n_levels: int) -> tuple[float, ...]:
    """How much each level's score counts.

    >>> powers("last", 3), powers("parent", 3), powers("path", 3)
    ((0.0, 0.0, 1.0), (0.0, 1.0, 1.0), (1.0, 1.0, 1.0))
    """
    counted = {"last": 1, "parent": 2, "path": n_levels}[mode]
    return tuple(float(n_levels - t <= counted) for t in range(n_levels))


def row_optimizer() -> tuple[RowOptimizer, str]:
    """How rows are trained, and why."""
    return "adagrad", "one number a row beside its weights"


def arithmetic(device: str, width: int) -> tuple[Arithmetic, str]:
    """In which numbers an encoder of this width multiplies in training, and why.

    >>> arithmetic("cpu", 8)[0]
    'float32'
    """
    known: dict[str, Any] = getattr(torch().cpu, "get_capabilities", dict)()  # older ones do not tell
    if device != "cpu" or not known.get("avx512_bf16", False):
        return "float32", f"no faster bfloat16 is known of {device}"
    if width < NARROW:
        return "float32", "the encoder is small"
    return "bfloat16", "this processor multiplies it at twice the speed"


def precision(n_labels: int, width: int) -> tuple[Arithmetic, str]:
    """How rows are kept in training, and why; afterwards it is bfloat16."""
    size = n_labels * width * 4
    if size > MOST_ROWS:
        return "bfloat16", f"the labels' rows would take {size / 2**30:.1f} GiB as float32"
    return "float32", f"the labels' rows take {size / 2**20:,.0f} MiB"


@dataclass(frozen=True)
class Memory:
    """Bytes a training run will need, by purpose."""

    parts: dict[str, int]

    @property
    def total(self) -> int:
        """Sum of the parts."""
        return sum(self.parts.values())

    def __str__(self) -> str:
        parts = ", ".join(f"{name} {size / 2**20:,.0f}" for name, size in self.parts.items())
        return f"{self.total / 2**30:.2f} GiB (MiB: {parts})"


def resident_bytes() -> int:
    """Memory this process has now; what it no longer needs is given back first, where the system lets us ask.

    >>> resident_bytes() > 2**20
    True
    """
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    except OSError:  # no such file on this system: the most it ever had
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
