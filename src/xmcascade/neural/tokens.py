"""Texts as token ids: one flat array and offsets, in memory or mapped, and batches of like length.

The order of an epoch follows from the seed and the epoch's number alone, so a run goes on from two integers:
the epoch and the batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from xmcascade.errors import DataError, SettingError
from xmcascade.kernels.parallel import blocks
from xmcascade.progress import tracker
from xmcascade.store import Strings
from xmcascade.store.files import replacing_file

__all__ = ["TokenStore", "batches", "cutting", "of_like_length", "of_one_length", "padded"]

BLOCK_BYTES = 4 << 20  # text tokenised at once: work for all cores, and long documents do not fill the memory
POOL = 64  # batches whose documents are sorted by length together
IDS, OFFSETS = "token_ids.bin", "token_offsets.npy"


@dataclass(frozen=True, eq=False)
class TokenStore:
    """Token ids of many documents, special tokens included, cut to a length.

    >>> from tokenizers import Tokenizer, models, pre_tokenizers
    >>> words = Tokenizer(models.WordLevel({"?": 0, "cat": 1, "dog": 2}, unk_token="?"))
    >>> words.pre_tokenizer = pre_tokenizers.Whitespace()
    >>> tokens = TokenStore.of(["cat dog cat", "dog"], words, max_tokens=2)
    >>> len(tokens), tokens.ids.tolist(), tokens.lengths.tolist()
    (2, [1, 2, 2], [2, 1])
    """

    ids: npt.NDArray[Any]
    """uint16 where the vocabulary allows, else int32."""
    offsets: npt.NDArray[np.int64]

    @classmethod
    def of(
        cls, texts: Strings | list[str], tokenizer: Any, max_tokens: int, folder: str | Path | None = None
    ) -> TokenStore:
        """Tokenise texts with a `tokenizers.Tokenizer`, which stays as it is (see `cutting`).

        With a folder, ids go to a file there as they are made and are mapped from it: any corpus fits.
        """
        texts = Strings.of(texts)
        if (tokenizer.truncation or {}).get("max_length") != max_tokens or tokenizer.padding:
            tokenizer = cutting(tokenizer, max_tokens)
        kind = np.uint16 if tokenizer.get_vocab_size() <= 2**16 else np.int32
        parts: list[npt.NDArray[Any]] = []
        sizes: list[npt.NDArray[np.int64]] = [np.zeros(1, np.int64)]
        with ExitStack() as open_files, tracker("tokens", len(texts)) as seen:
            if folder is not None:
                Path(folder, OFFSETS).unlink(missing_ok=True)  # written last, it says that the ids are whole
                file = open_files.enter_context(replacing_file(Path(folder, IDS)))
            for low, high in _blocks(texts):
                part = list(texts[low:high])
                # One text needs no threads: waking them and putting them to sleep would delay what follows.
                encoded = tokenizer.encode_batch_fast(part) if len(part) > 1 else map(tokenizer.encode, part)
                found = [each.ids for each in encoded]
                sizes.append(np.fromiter(map(len, found), np.int64, len(found)))
                ids = np.fromiter(chain.from_iterable(found), kind, int(sizes[-1].sum()))
                if folder is None:
                    parts.append(ids)
                else:
                    file.write(ids.data)
                seen.advance(high - low)
        offsets = np.cumsum(np.concatenate(sizes))
        if folder is None:
            return cls(parts[0] if len(parts) == 1 else np.concatenate(parts), offsets)
        with replacing_file(Path(folder, OFFSETS)) as file:
            np.save(file, offsets)
        return cls.open(folder)

    @classmethod
    def open(cls, folder: str | Path) -> TokenStore:
        """What `of` wrote to this folder, mapped read-only."""
        try:
            offsets = np.load(Path(folder, OFFSETS), mmap_mode="r")
            n_bytes, n_ids = Path(folder, IDS).stat().st_size, int(offsets[-1])
            if offsets.dtype != np.int64 or n_bytes not in (2 * n_ids, 4 * n_ids):
                raise ValueError(f"{n_bytes} bytes for {n_ids} tokens")
            kind = np.uint16 if n_bytes == 2 * n_ids else np.int32
            empty = np.zeros(0, kind)  # an empty file cannot be mapped
            ids = np.memmap(Path(folder, IDS), kind, "r") if n_ids else empty
        except (OSError, ValueError, IndexError) as error:
            what = f"has no whole token ids ({error})"
            raise DataError(what, where=str(folder), remedy="tokenise again") from error
        return cls(np.asarray(ids), np.asarray(offsets))

    def __len__(self) -> int:
        """Number of documents."""
        return len(self.offsets) - 1

    @property
    def lengths(self) -> npt.NDArray[np.int64]:
        """Tokens of each document."""
        return np.diff(self.offsets)


def cutting(tokenizer: Any, max_tokens: int) -> Any:
    """A copy of a tokenizer that cuts to this length and does not pad; to make it takes some milliseconds.

    >>> from tokenizers import Tokenizer, models
    >>> cutting(Tokenizer(models.WordLevel({"cat": 0})), 9).truncation["max_length"]
    9
    """
    tokenizer = type(tokenizer).from_str(tokenizer.to_str())
    if max_tokens <= tokenizer.num_special_tokens_to_add(False):
        least = tokenizer.num_special_tokens_to_add(False) + 1
        raise SettingError(f"max_tokens is {max_tokens}", remedy=f"use {least} or more")
    tokenizer.enable_truncation(max_tokens)
    tokenizer.no_padding()
    return tokenizer


def _blocks(texts: Strings) -> list[tuple[int, int]]:
    """Document ranges of about BLOCK_BYTES each."""
    if texts.n_bytes <= BLOCK_BYTES:
        return [(0, len(texts))]
    size = texts.offsets - texts.offsets[0]
    cuts = np.searchsorted(size, np.arange(BLOCK_BYTES, size[-1], BLOCK_BYTES))
    return list(pairwise(np.unique(np.concatenate([[0], cuts, [len(texts)]])).tolist()))


def padded(
    tokens: TokenStore, docs: npt.ArrayLike, pad: int, left: bool = False
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """Token ids [B, T] of some documents, padded to the longest of them, and where they are real.

    >>> tokens = TokenStore(np.array([7, 8, 9]), np.array([0, 1, 3]))
    >>> ids, real = padded(tokens, [0, 1], pad=0, left=True)
    >>> ids.tolist(), real.tolist()
    ([[0, 7], [8, 9]], [[False, True], [True, True]])
    """
    docs = np.asarray(docs, np.int64)
    starts = tokens.offsets[docs]
    sizes = tokens.offsets[docs + 1] - starts
    width = int(sizes.max(initial=1))
    place = np.arange(width)
    real = place >= width - sizes[:, None] if left else place < sizes[:, None]
    ids = np.full(real.shape, pad, np.int64)
    own = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    ids[real] = tokens.ids[np.repeat(starts, sizes) + own]
    return ids, real


def of_one_length(lengths: npt.NDArray[np.int64], most: int) -> Iterator[npt.NDArray[np.int64]]:
    """Documents that have the same number of tokens, at most so many together, the shortest first.

    >>> [docs.tolist() for docs in of_one_length(np.array([5, 2, 5, 5]), most=2)]
    [[1], [0, 2], [3]]
    """
    order = np.argsort(lengths, kind="stable")
    cuts = [0, *(np.flatnonzero(np.diff(lengths[order])) + 1).tolist(), len(order)]
    for first, last in pairwise(cuts):
        for low in range(first, last, most):
            yield order[low : min(low + most, last)]


def of_like_length(lengths: npt.NDArray[np.int64], most: int) -> Iterator[npt.NDArray[np.int64]]:
    """Documents of at most so many tokens together, one document at least, the shortest first.

    >>> [docs.tolist() for docs in of_like_length(np.array([5, 2, 5, 3]), most=7)]
    [[1, 3], [0], [2]]
    """
    order = np.argsort(lengths, kind="stable")
    ends, first = np.cumsum(lengths[order]), 0
    while first < len(order):
        before = ends[first - 1] if first else 0
        last = max(first + 1, int(np.searchsorted(ends, before + most, "right")))
        yield order[first:last]
        first = last


def batches(
    lengths: npt.NDArray[np.int64], size: int, seed: int, epoch: int, start: int = 0
) -> Iterator[npt.NDArray[np.int64]]:
    """The batches of an epoch from number `start` on: shuffled, documents of like length together.

    An epoch has one batch for each `size` documents, and each document once; one batch may be smaller.

    >>> lengths = np.array([5, 1, 1, 5])
    >>> found = [sorted(batch.tolist()) for batch in batches(lengths, 2, seed=0, epoch=0)]
    >>> sorted(found)
    [[0, 3], [1, 2]]
    >>> [sorted(batch.tolist()) for batch in batches(lengths, 2, seed=0, epoch=0, start=1)] == found[1:]
    True
    """
    rng = np.random.default_rng((seed, epoch))
    order = rng.permutation(len(lengths))
    cut = []
    for low, high in blocks(len(order), size * POOL):
        pool = order[low:high]
        pool = pool[np.argsort(lengths[pool], kind="stable")]
        cut += [pool[a:b] for a, b in blocks(len(pool), size)]
    for i in rng.permutation(len(cut))[start:]:
        yield cut[i]
