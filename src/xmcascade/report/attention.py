"""Where an encoder looks: what each token takes from the others, layer by layer and level by level.

What a level reads is the summary token or the mean of all tokens. So its attention is the summary token's
row, or the mean of all rows: how much of every token went into what is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from xmcascade.corpus import Corpus
from xmcascade.models.views import View
from xmcascade.neural import Encoder, Reader, TokenStore
from xmcascade.progress import tracker

__all__ = ["Attention", "attention_of", "entropy", "label_attention", "pretrained_reader"]

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Attention:
    """Of an encoder, over some documents."""

    self_mean: Floats
    """[layers]: what the summary token takes from itself, 0 to 1; mean over heads."""
    self_most: Floats
    """[layers]: the same in the head that takes most."""
    self_all: Floats
    """[layers]: what any token takes from itself; mean over tokens and heads."""
    layers: Floats
    """[documents, layers]: entropy of what goes into what is read, in bits."""
    levels: Floats
    """[documents, levels]: the same, over the layers that a level reads."""
    overlap: Floats
    """[levels, levels]: how much of their attention levels have in common, 0 to 1."""

    def to_dict(self) -> dict[str, Any]:
        """Means over documents, ready for JSON."""
        return {
            "self_mean": _rounded(self.self_mean),
            "self_most": _rounded(self.self_most),
            "self_all": _rounded(self.self_all),
            "entropy_by_layer": _rounded(self.layers.mean(axis=0)),
            "entropy_by_level": _rounded(self.levels.mean(axis=0)),
            "overlap": _rounded(self.overlap),
        }


def entropy(shares: npt.ArrayLike) -> npt.NDArray[Any]:
    """Of shares that add up to 1 along the last axis, in bits.

    >>> entropy([[0.5, 0.5, 0.0], [1.0, 0.0, 0.0]]).tolist()
    [1.0, 0.0]
    """
    p = np.asarray(shares, np.float64)
    bits: npt.NDArray[Any] = np.abs((p * np.log2(np.where(p > 0, p, 1))).sum(axis=-1))
    return bits


def attention_of(reader: Reader, tokens: TokenStore, title: str) -> tuple[Attention | None, list[Floats]]:
    """Of an encoder over documents, where its family tells; and what each level reads of them."""
    n_layers, n_levels, n_docs = reader.encoder.n_layers, len(reader.reads), len(tokens)
    own = np.zeros((3, n_docs, n_layers))
    layers, overlap = np.zeros((n_docs, n_layers)), np.zeros((n_docs, n_levels, n_levels))
    xs = [np.zeros((n_docs, width)) for width in reader.widths]
    told = True
    for part, features, attention in reader.look(tokens, title):
        for x, found in zip(xs, features, strict=True):
            x[part] = (found.mean(1) if reader.pooling == "mean" else found[:, reader.summary]).numpy()
        told = told and len(attention) == n_layers
        if not told:
            continue
        taken = np.stack([_taken(reader, layer.numpy()) for layer in attention])  # [L, B, heads, T]
        alone = np.stack([layer[:, :, reader.summary, reader.summary].numpy() for layer in attention])
        diagonals = [layer.diagonal(dim1=2, dim2=3).mean((1, 2)).numpy() for layer in attention]
        own[:, part] = alone.mean(axis=2).T, alone.max(axis=2).T, np.stack(diagonals, axis=1)
        layers[part] = entropy(taken).mean(axis=2).T
        maps = [
            np.mean([taken[k - 1] for k in read if k] or [taken[0]], axis=(0, 2)) for read in reader.reads
        ]
        overlap[part] = np.array([[np.minimum(a, b).sum(axis=1) for a in maps] for b in maps]).T
    if not told:
        return None, xs
    levels = _by_level(layers, reader.reads)
    mean, most, every = own.mean(axis=1)
    return Attention(mean, most, every, layers, levels, overlap.mean(axis=0)), xs


def label_attention(view: View, documents: Corpus, labels: npt.NDArray[np.int32]) -> Floats:
    """Where nodes attend to tokens themselves: entropy by level on the way to a label (one a document)."""
    rows = []
    with tracker("looking", documents.n_docs) as seen:
        for i in range(documents.n_docs):
            told = view.told(documents.take([i]), labels[i : i + 1])
            rows.append([float(entropy(step.tokens)) for step in told.paths[0]])
            seen.advance()
    return np.array(rows)


def pretrained_reader(name: str, reader: Reader) -> Reader:
    """The encoder of this name as it was before training, read in the same way; nothing is fetched."""
    encoder = Encoder.load(name, fetch=False)
    encoder.cut(reader.reads)
    return Reader(encoder, reader.reads, reader.pooling)


def _taken(reader: Reader, layer: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """[B, heads, T] of [B, heads, T, T]: how much of each token goes into what is read."""
    return layer.mean(axis=2) if reader.pooling == "mean" else layer[:, :, reader.summary]


def _by_level(layers: Floats, reads: Sequence[Sequence[int]]) -> Floats:
    each = [[k - 1 for k in read if k] or [0] for read in reads]
    return np.stack([layers[:, own].mean(axis=1) for own in each], axis=1)


def _rounded(values: Floats) -> Any:
    return values.round(4).tolist()
