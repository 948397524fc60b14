"""From documents to the features that each level reads, with or without gradients."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.lib.format import open_memmap

from xmcascade.kernels.parallel import blocks
from xmcascade.neural.encoder import Encoder, Pooling
from xmcascade.neural.extra import torch
from xmcascade.neural.heads import Ints
from xmcascade.neural.layers import LEAST_TOKENS
from xmcascade.neural.networks import Network
from xmcascade.neural.plan import Arithmetic
from xmcascade.neural.tokens import TokenStore, batches, of_like_length, of_one_length, padded
from xmcascade.progress import tracker

__all__ = ["Reader", "own_threads", "torch_threads"]

DOCS_AT_ONCE, TOKENS_AT_ONCE = 64, 512
LOOKED_AT_ONCE = 16  # documents: all tokens' attention to all others, at every layer
_PROCESS = os.getpid()
PACE_SECONDS = 3.0
ROUNDED = 0.85  # of the memory of float32, when products are rounded: between what peaks of two corpora said


def own_threads(threads: int) -> int:
    """So many threads; one in a forked child, where a library's others are gone.

    >>> own_threads(2)
    2
    """
    return threads if os.getpid() == _PROCESS else 1


@contextmanager
def torch_threads(threads: int) -> Iterator[None]:
    """Let torch use so many threads for a while; one in a forked child.

    >>> with torch_threads(1):
    ...     torch().get_num_threads()
    1
    """
    before = torch().get_num_threads()
    torch().set_num_threads(own_threads(threads))
    try:
        yield
    finally:
        torch().set_num_threads(before)


@dataclass(eq=False)
class Reader:
    """What the levels read of a document: an encoder, its layers, and how tokens become one vector."""

    encoder: Encoder | Network
    reads: tuple[tuple[int, ...], ...]
    pooling: Pooling
    stored: tuple[TokenStore, npt.NDArray[Any]] | None = None
    """Documents whose outputs of the frozen layers are at hand, a row a token."""
    arithmetic: Arithmetic = "float32"
    """Of what is read to learn from; answers are float32."""

    @property
    def widths(self) -> list[int]:
        """Features of each level."""
        return [self.encoder.width * len(layers) for layers in self.reads]

    def activations(self, n_tokens: int) -> int:
        """Bytes that a document of so many tokens leaves for the backward pass."""
        part = ROUNDED if self.arithmetic == "bfloat16" else 1.0
        return round(4 * part * self.encoder.activations(n_tokens))

    def batch(self, tokens: TokenStore, docs: Any, learning: bool = True) -> list[Any]:
        """Features of a batch, with gradients; learning: it is one to learn from."""
        ids, real = self.tensors(tokens, docs)
        lower = None
        if self.stored is not None and self.stored[0] is tokens:
            lower = torch().zeros(*ids.shape, self.encoder.width, device=ids.device)
            lower[real] = torch().from_numpy(self.stored[1][_places(tokens, docs)]).to(ids.device).float()
        with self._rounded(learning):
            features = self.encoder.features(ids, real, self.reads, self.pooling, lower)
        return [x.float() for x in features]

    def _packed(self, tokens: TokenStore, docs: Any, learning: bool) -> list[Any]:
        """As `batch`, of documents in order of length, without padding."""
        assert isinstance(self.encoder, Encoder)  # others do not pack
        ids, lengths = tokens.ids[_places(tokens, docs)], tokens.lengths[docs].tolist()
        if (short := LEAST_TOKENS - len(ids)) > 0:
            ids, lengths = np.pad(ids, (short, 0), constant_values=self.encoder.pad), [1] * short + lengths
        on_device = torch().from_numpy(np.ascontiguousarray(ids, np.int64)).to(self.encoder.device)
        with self._rounded(learning):
            features = self.encoder.packed(on_device, lengths, self.reads, self.pooling)
        return [x[-len(docs) :].float() for x in features]

    def _rounded(self, learning: bool) -> Any:
        rounded = learning and self.arithmetic == "bfloat16"
        return torch().autocast(self.encoder.device.type, torch().bfloat16, enabled=rounded)

    def store(self, tokens: TokenStore, folder: str | Path) -> None:
        """Run the frozen layers once for all documents and keep their outputs, as float16, in a file."""
        assert isinstance(self.encoder, Encoder)  # others have no layers to freeze
        shape = (len(tokens.ids), self.encoder.width)
        kept = open_memmap(Path(folder, "frozen.npy"), "w+", np.float16, shape)
        order = np.argsort(tokens.lengths, kind="stable")
        with tracker("frozen layers", len(tokens)) as seen:
            for low, high in blocks(len(order), DOCS_AT_ONCE):
                docs = order[low:high]
                ids, real = self.tensors(tokens, docs)
                kept[_places(tokens, docs)] = self.encoder.lower(ids, real)[real].numpy(force=True)
                seen.advance(len(docs))
        self.stored = tokens, kept

    def encode(
        self,
        tokens: TokenStore,
        docs: Ints | None = None,
        title: str = "reading",
        folder: str | Path | None = None,
    ) -> list[npt.NDArray[Any]]:
        """Features of documents for each level, as arrays; what a document gets depends on itself alone.

        There is no padding: documents are packed, or only those of one length are read together. With a
        folder, the arrays are float16 and mapped from files there, to learn from.
        """
        docs = np.arange(len(tokens)) if docs is None else docs
        shapes = [(len(docs), width) for width in self.widths]
        out: list[npt.NDArray[Any]] = [
            np.empty(shape, np.float32)
            if folder is None
            else open_memmap(Path(folder, f"features.{t}.npy"), "w+", np.float16, shape)
            for t, shape in enumerate(shapes)
        ]
        if self.encoder.model.training:  # to ask is quicker than to tell
            self.encoder.model.eval()
        with torch().inference_mode(), tracker(title, len(docs)) as seen:
            for part, read in self._parts(tokens, docs):
                for own, found in zip(out, read(tokens, docs[part], folder is not None), strict=True):
                    own[part] = found.numpy(force=True)
                seen.advance(len(part))
        return out

    def _parts(self, tokens: TokenStore, docs: Ints) -> Iterator[tuple[Ints, Any]]:
        """Documents to be read together, and what reads them."""
        lengths, stored = tokens.lengths[docs], self.stored is not None and self.stored[0] is tokens
        packs = isinstance(self.encoder, Encoder) and self.encoder.packs and not stored
        if packs and lengths.min(initial=1):
            for part in of_like_length(lengths, TOKENS_AT_ONCE):
                yield part, self._packed
        else:
            for part in of_one_length(lengths, DOCS_AT_ONCE):
                yield part, self.batch

    def pace(self, tokens: TokenStore, docs: Ints, batch: int) -> float:
        """Tokens that training reads in a second, tried for a few seconds."""
        model, lengths, n_tokens, start = self.encoder.model, tokens.lengths[docs], 0, 0.0
        model.train()
        with torch().random.fork_rng():  # dropout is to fall later as if this had not been
            for number, part in enumerate(batches(lengths, batch, 0, 0)):
                features = [x.sum() for x in self.batch(tokens, docs[part]) if x.requires_grad]
                if features:
                    sum(features).backward()
                now = time.monotonic()
                if number == 0:  # the first one is slower than all others
                    first, start = int(lengths[part].sum()), now
                    continue
                n_tokens += int(lengths[part].sum())
                if now - start > PACE_SECONDS:
                    break
        model.zero_grad(set_to_none=True)
        return (n_tokens or first) / max(time.monotonic() - start, 1e-3)

    def look(self, tokens: TokenStore, title: str = "looking") -> Iterator[tuple[Ints, list[Any], list[Any]]]:
        """Some documents of one length at a time: which, and what `Encoder.look` says of their tokens."""
        assert isinstance(self.encoder, Encoder)  # others have no layers to look at
        with tracker(title, len(tokens)) as seen:
            for part in of_one_length(tokens.lengths, LOOKED_AT_ONCE):
                ids, real = self.tensors(tokens, part)
                features, attention = self.encoder.look(ids, real, self.reads)
                n_tokens = int(tokens.lengths[part[0]])
                first = ids.shape[1] - n_tokens if self.encoder.left else 0
                own = slice(first, first + n_tokens)
                yield part, [x[:, own] for x in features], [a[:, :, own, own] for a in attention]
                seen.advance(len(part))

    @property
    def summary(self) -> int:
        """The place of the summary token."""
        return -1 if self.encoder.left else 0

    def tensors(self, tokens: TokenStore, docs: Any) -> tuple[Any, Any]:
        """Token ids of a batch, padded, and where they are real."""
        ids, real = padded(tokens, docs, self.encoder.pad, self.encoder.left)
        short = LEAST_TOKENS - ids.shape[1]
        if short > 0:
            sides = (0, 0), (short, 0) if self.encoder.left else (0, short)
            ids = np.pad(ids, sides, constant_values=self.encoder.pad)
            real = np.pad(real, sides)
        device = self.encoder.device
        return torch().from_numpy(ids).to(device), torch().from_numpy(np.ascontiguousarray(real)).to(device)


def _places(tokens: TokenStore, docs: Any) -> Ints:
    """The places of the documents' tokens in the flat store, document by document."""
    starts, sizes = tokens.offsets[docs], tokens.lengths[docs]
    places: Ints = np.arange(sizes.sum()) + np.repeat(starts - np.cumsum(sizes) + sizes, sizes)
    return places
