"""Label-wise attention (AttentionXML): every node of a level has a query, and reads a text in its own way.

A node's score is no product of a row and features, so this is plain torch; but the queries are rows of a
head, and only those of a document's candidates are read and updated.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.sparse as sp

from xmcascade.kernels import heads as kernels
from xmcascade.neural.cascade import LevelLoss, Truth
from xmcascade.neural.extra import torch
from xmcascade.neural.heads import Floats, Head, Ints, Shortlist
from xmcascade.neural.networks import LstmNetwork
from xmcascade.neural.reader import Reader
from xmcascade.neural.stage import Candidates
from xmcascade.neural.tokens import TokenStore

__all__ = ["AttentionLevel", "AttentionStage"]

DOCS_AT_ONCE, SCORES_AT_ONCE = 64, 16384


@dataclass(eq=False)
class AttentionLevel:
    """A network and the queries of a level's nodes (the head's rows)."""

    network: LstmNetwork
    head: Head

    def scores(self, states: Any, short: Shortlist, queries: Any) -> Any:
        """Of the entries, from the tokens' states [B, T, width] and the queries of the entries."""
        sizes = np.diff(short.entry_bounds)
        places = np.arange(max(int(sizes.max(initial=1)), 1))
        real = torch().from_numpy(places < sizes[:, None]).to(states.device)
        at = np.minimum(short.entry_bounds[:-1, None] + places, max(short.n_entries - 1, 0))
        found = self.network.attend(states, queries[torch().from_numpy(at).to(states.device)])[real]
        return found + torch().from_numpy(self.head.biases[short.rows]).to(states.device)

    def attention(self, tokens: TokenStore, nodes: Ints) -> tuple[Floats, Floats]:
        """Scores of some nodes for the only document, [E], and how much each takes of every token, [E, T]."""
        short = Shortlist(np.array([0, len(nodes)]), nodes, np.arange(len(self.head.rows) + 1))
        queries = self.queries(short)
        with torch().inference_mode():
            (states,) = Reader(self.network, ((1,),), "mean").batch(tokens, np.zeros(1, np.int64))
            shares = self.network.attention(states, queries[None])[0, :, : len(tokens.ids)]
            return self.scores(states, short, queries).numpy(force=True), shares.numpy(force=True)

    def queries(self, short: Shortlist) -> Any:
        """Of the entries."""
        return torch().from_numpy(self.head.rows[short.rows]).to(self.network.device)

    def logits(self, tokens: TokenStore, docs: Ints, short: Shortlist) -> Floats:
        """Scores of documents' entries, without gradients."""
        reader = Reader(self.network, ((1,),), "mean")
        self.network.model.eval()
        out = np.empty(short.n_entries, np.float32)
        with torch().inference_mode():
            for rows, part, entries in _pieces(short):
                (states,) = reader.batch(tokens, docs[rows])
                out[entries] = self.scores(states, part, self.queries(part)).numpy(force=True)
        return out


def _pieces(short: Shortlist) -> Iterator[tuple[Ints, Shortlist, slice]]:
    """A shortlist in parts that fit into memory: their documents, their own shortlist, their entries.

    A document with many clusters may be in several parts.
    """
    starts, first = short.starts, 0
    while first < len(short.clusters):
        doc = int(short.docs[first])
        last = int(np.searchsorted(starts, starts[first] + SCORES_AT_ONCE, side="right")) - 1
        last = min(max(last, first + 1), int(short.doc_pairs[min(doc + DOCS_AT_ONCE, short.n_docs)]))
        docs = np.arange(doc, int(short.docs[last - 1]) + 1)
        pairs = np.clip(short.doc_pairs[doc : docs[-1] + 2], first, last) - first
        part = Shortlist(pairs, short.clusters[first:last], short.offsets)
        yield docs, part, slice(int(starts[first]), int(starts[last]))
        first = last


@dataclass(eq=False)
class AttentionStage(Candidates, AttentionLevel):
    """One level to learn on, with candidates made beforehand: the children of clusters above."""

    reached: Any
    """CSR, documents x clusters above, columns ascending."""
    offsets: Ints
    """The nodes below each of these clusters."""
    _graphs: list[tuple[Any, Any, Any, Shortlist]] = field(default_factory=list)
    _sums: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """As training wants it."""
        self.heads = [self.head]

    def activations(self, n_tokens: int) -> int:
        """Numbers that a document of so many tokens needs at most beside the network's."""
        most = int(np.diff(self.reached.indptr).max(initial=1)) * int(np.diff(self.offsets).max(initial=1))
        width, shared = self.network.width, int(self.network.config["shared"])
        return min(most, len(self.head.rows)) * (4 * width + 3 * shared + 3 * n_tokens)

    def forward(
        self, xs: Sequence[Floats], truths: Sequence[Truth], docs: Ints, n_docs: int
    ) -> list[LevelLoss]:
        """Binary cross entropy of some documents of a batch of n_docs."""
        (x,), (truth,), short = xs, truths, self.shortlist(docs)
        states = torch().from_numpy(x).to(self.network.device).requires_grad_()
        queries = self.queries(short).requires_grad_()
        scores = self.scores(states, short, queries)
        y, slopes = np.zeros(short.n_entries, np.float32), np.empty(short.n_entries, np.float32)
        where = short.pairs, short.doc_pairs, short.offsets, self._parents
        kernels.targets(*where, truth.rows, truth.nodes, np.zeros(0, np.float32), y)
        scales = 1.0 / (n_docs * np.diff(short.entry_bounds))
        logits = scores.detach().numpy(force=True)
        loss = kernels.cross_entropy(logits, y, short.entry_bounds, scales, slopes)
        self._graphs.append((states, queries, scores, short))
        nothing = np.zeros((len(x), 0), np.float32)  # the graph has what the backward pass needs
        return [LevelLoss(short, nothing, slopes, loss, len(truth.nodes), 0, 0)]

    def backward(
        self, levels: Sequence[LevelLoss], rate: float, seed: int, hold: bool = False
    ) -> list[Floats]:
        """Update the queries; returns the loss's derivatives by the tokens' states."""
        back = np.zeros((0, 0), np.float32)
        if self._graphs:  # none when the parts of a step were held, and are now taken together
            states, queries, scores, short = self._graphs.pop()
            scores.backward(torch().from_numpy(levels[0].slopes).to(scores.device))
            back = states.grad.numpy(force=True)
            parts = short.rows, queries.grad.numpy(force=True), levels[0].slopes
            for name, part in zip(("rows", "queries", "biases"), parts, strict=True):
                self._sums.setdefault(name, []).append(part)
        if not hold:
            rows, queries, biases = (np.concatenate(part) for part in self._sums.values())
            self._sums = {}
            ids, at = np.unique(rows, return_inverse=True)
            marks = sp.csr_matrix((np.ones(len(at), np.float32), (at, np.arange(len(at)))))
            self.head.update(ids, marks @ queries, marks @ biases, rate, seed)
        return [back]
