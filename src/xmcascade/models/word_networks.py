"""Methods before transformers: small networks over token embeddings (XML-CNN, AttentionXML).

Where the papers start from word2vec or GloVe, these start from the token embeddings of the encoder that is
named; none of its layers is used.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from functools import cache, partial
from tempfile import TemporaryDirectory
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from xmcascade.corpus import Corpus
from xmcascade.evaluate import Ranking
from xmcascade.features import LabelFeatures
from xmcascade.kernels.parallel import blocks, thread_count
from xmcascade.models.base import Model
from xmcascade.models.cascade_settings import CascadeXMLSettings
from xmcascade.models.cascadexml import CascadeXML
from xmcascade.models.fitting import FitRun, ModelSettings, Packed
from xmcascade.models.ranker import best_of, rows_of
from xmcascade.models.reading import EncoderSettings, Prepared, spans, words_of
from xmcascade.models.trees import encoder_tree, tree_arrays
from xmcascade.models.views import Step, Told, View
from xmcascade.neural import (
    AttentionLevel,
    AttentionStage,
    ConvNetwork,
    Head,
    LstmNetwork,
    RowOptimizer,
    Shortlist,
    TokenStore,
    Training,
    TrainingSettings,
    cutting,
    torch_threads,
)
from xmcascade.store import Checkpoint, Strings, within
from xmcascade.tree import LabelTree, TreeSettings

__all__ = ["XMLCNN", "AttentionXML", "AttentionXMLSettings", "XMLCNNSettings"]

log = logging.getLogger("xmcascade")

DOCS_AT_ONCE = 4096  # when clusters are found for the next level
FROM_SCRATCH = TrainingSettings(rate=1e-3, head_epochs=0.0)


def _no_layers(settings: EncoderSettings) -> None:
    """Refuse what is said of an encoder's layers."""
    settings.require(settings.freeze_layers == 0, "freeze_layers", "0: no encoder layer is used")
    settings.require(settings.pooling == "mean", "pooling", "'mean': no encoder layer is used")


@dataclass(frozen=True, kw_only=True)
class XMLCNNSettings(CascadeXMLSettings):
    """Settings of XMLCNN: those of CascadeXML, with other defaults, and the network's sizes."""

    filters: int = 128
    """For each of the windows of 2, 4 and 8 tokens."""
    hidden: int = 512
    """Width of the bottleneck, which the labels' rows read."""
    encoder_dropout: float = 0.25
    init: Literal["random", "documents", "texts", "both"] = "random"
    training: TrainingSettings = FROM_SCRATCH

    def check(self) -> None:
        """Refuse values out of range."""
        super().check()
        _no_layers(self)
        self.require(self.layers is None, "layers", "null: no encoder layer is used")
        self.require(1 <= self.filters <= 65536, "filters", "1 to 65536")
        self.require(1 <= self.hidden <= 65536, "hidden", "1 to 65536")


class XMLCNN(CascadeXML):
    """Convolutions over tokens, a bottleneck, and a row for each label (Liu et al., 2017).

    There are no clusters unless `tree` says so.

    >>> XMLCNN(hidden=64).settings.hidden
    64
    """

    name: ClassVar[str] = "xml-cnn"
    settings_type: ClassVar[type[ModelSettings]] = XMLCNNSettings
    presets: ClassVar[Mapping[str, ModelSettings]] = {}

    def _prepared(self, corpus: Corpus, run: FitRun, folder: str) -> Prepared:
        s: Any = self.settings
        network = partial(ConvNetwork.over, seed=s.seed, filters=s.filters, hidden=s.hidden)
        return Prepared.of(corpus, s, run, folder, network)

    def _levels(self, n_labels: int) -> tuple[int, ...]:
        return ()

    def _reads(self, n_levels: int, n_layers: int) -> tuple[tuple[int, ...], ...]:
        return ((1,),) * n_levels


@dataclass(frozen=True, kw_only=True)
class AttentionXMLSettings(EncoderSettings):
    """Settings of AttentionXML; what is None is derived, and said why in the log and in the model."""

    hidden: int = 512
    """Width of a token's state: half of it for each direction."""
    shared: int = 256
    """Width of the layer that makes a score of what a label attends to."""
    tree: TreeSettings = TreeSettings()  # noqa: RUF009 - it is frozen
    label_features: LabelFeatures = "pifa"
    shortlist: int = 32
    """Clusters of each level that go on."""
    dropout: float = 0.3
    """Of the tokens' states."""
    encoder_dropout: float = 0.2
    optimizer: RowOptimizer = "adam"
    """Of the labels' queries."""
    training: TrainingSettings = FROM_SCRATCH

    def check(self) -> None:
        """Refuse values out of range."""
        super().check()
        _no_layers(self)
        self.require(2 <= self.hidden <= 65536 and self.hidden % 2 == 0, "hidden", "2 to 65536, even")
        self.require(1 <= self.shared <= 65536, "shared", "1 to 65536")
        self.require(self.shortlist >= 1, "shortlist", "from 1 up")
        self.require(0 <= self.dropout < 1, "dropout", "0 or more, below 1")


@dataclass(frozen=True, eq=False)
class _State:
    tree: LabelTree
    levels: list[AttentionLevel]
    tokenizer: Any
    max_tokens: int


class AttentionXML(Model[AttentionXMLSettings, _State]):
    """Tokens in both directions, and a label's own attention to them, level by level (You et al., 2019).

    >>> AttentionXML(shortlist=64).settings.shortlist
    64
    """

    name: ClassVar[str] = "attentionxml"
    settings_type: ClassVar[type[ModelSettings]] = AttentionXMLSettings

    def _fit(self, corpus: Corpus, run: FitRun) -> _State:
        with TemporaryDirectory(prefix="xmcascade-") as folder, torch_threads(run.threads):
            return self._learn(run.taught(corpus), run, folder)

    def _learn(self, corpus: Corpus, run: FitRun, folder: str) -> _State:
        s = self.settings
        network = partial(LstmNetwork.over, seed=s.seed, hidden=s.hidden, shared=s.shared)
        made = Prepared.of(corpus, s, run, folder, network)
        words = cache(lambda: words_of(corpus, s.features, run))
        tree = encoder_tree(corpus, words, s.tree, s.label_features, s.seed, run)
        relevance, docs = tree.relevance(corpus.labels), np.arange(corpus.n_docs)
        reader = made.reader(((1,),))
        epochs, _ = made.epochs(docs, run, reader)
        above: Any = sp.csr_matrix(np.ones((corpus.n_docs, 1), np.float32))
        levels = list[AttentionLevel]()
        for t, size in enumerate(tree.sizes):
            how: dict[str, Any] = {"optimizer": s.optimizer, "decay": 0.0, "threads": run.threads}
            head = Head.random(size, s.hidden, run.rng, **how)
            counts = np.bincount(relevance[t].indices, minlength=size)
            head.biases[:] = np.log(np.maximum(counts, 0.5) / corpus.n_docs)
            offsets = tree.offsets[t - 1] if t else np.array([0, size])
            stage = AttentionStage(made.encoder, head, above, offsets)  # type: ignore[arg-type]
            title = f"{self.name}: {size:,} nodes"
            training = Training(
                reader=reader, cascade=stage, tokens=made.tokens, short=made.short, relevance=[relevance[t]],
                docs=docs, dropouts=(s.dropout,), settings=s.training, seed=s.seed + t, title=title,
                best=Checkpoint(f"{folder}/best", ""), kept=run.checkpoint and run.checkpoint.part(f"{t}"),
            )  # fmt: skip
            log.info("%s: training will take about %s", title, training.memory())
            training.run(epochs, lambda: None)
            levels.append(AttentionLevel(deepcopy(stage.network), Head(head.rows, head.biases, "sgd")))
            if t + 1 < tree.n_levels:
                found = self._found(stage, made.tokens)
                above = found + (relevance[t] > 0).astype(np.float32)
                above.sort_indices()
        for level in levels:
            level.network.model.to("cpu")
        return _State(tree, levels, made.tokenizer, made.max_tokens)

    def _found(self, stage: AttentionStage, tokens: TokenStore) -> Any:
        """The best nodes of each document among its candidates: CSR, documents x nodes."""
        parts, size = [], len(stage.head.rows)
        for low, high in blocks(len(tokens), DOCS_AT_ONCE):
            docs = np.arange(low, high)
            short = stage.shortlist(docs)
            logits = stage.logits(tokens, docs, short)
            best, _ = best_of(_entries(short, size), logits, min(self.settings.shortlist, size))
            parts.append(rows_of(best, size))
        return sp.vstack(parts, format="csr")

    def _files(self, corpus: Corpus) -> list[npt.NDArray[Any]]:
        return tree_arrays(corpus, self.settings.tree)

    # Answers and keeping ----------------------------------------------------------------------------------

    def _tokens(self, state: _State, documents: Corpus) -> TokenStore:
        assert documents.texts is not None  # the contract has checked
        return TokenStore.of(documents.texts, state.tokenizer, state.max_tokens)

    def _opened(self, state: _State, tokens: TokenStore, k: int = 0) -> list[Any]:
        """For each level of clusters those that go on, with their scores: CSR, documents x clusters."""
        tree, docs, opened = state.tree, np.arange(len(tokens)), list[Any]()
        short, paths = Shortlist.root(len(docs), tree.sizes[0]), np.zeros(len(docs), np.float32)
        for level, size, below in zip(state.levels, tree.sizes, tree.offsets, strict=False):
            scores = np.repeat(paths, np.diff(short.starts)) + _logs(level.logits(tokens, docs, short))
            keep = min(max(self.settings.shortlist, k), size)
            found, values = best_of(_entries(short, size), scores, keep)
            kept = rows_of(found, size)
            kept.data = values[found >= 0]
            kept.sort_indices()
            short, paths = _children(kept, below), kept.data
            opened.append(kept)
        return opened

    def _rank(self, state: _State, documents: Corpus, k: int) -> Ranking:
        tree, tokens, docs = state.tree, self._tokens(state, documents), np.arange(documents.n_docs)
        short, paths = Shortlist.root(len(docs), tree.sizes[0]), np.zeros(len(docs), np.float32)
        with torch_threads(thread_count(self.threads)):
            if opened := self._opened(state, tokens, k):
                short, paths = _children(opened[-1], tree.offsets[-1]), opened[-1].data
            logits = state.levels[-1].logits(tokens, docs, short)
        scores = np.repeat(paths, np.diff(short.starts)) + _logs(logits)
        candidates = _entries(short, tree.n_labels)
        candidates.indices = tree.order[candidates.indices]
        labels, scores = best_of(candidates, scores, k)
        scores[labels < 0] = -np.inf
        return Ranking(labels, scores, np.exp(scores))

    def _score(self, state: _State, documents: Corpus, candidates: Any) -> tuple[Any, Any]:
        tokens, docs = self._tokens(state, documents), np.arange(documents.n_docs)
        pairs, nodes = candidates.indptr.astype(np.int64), state.tree.positions[candidates.indices]
        scores = np.zeros(len(nodes), np.float32)
        with torch_threads(thread_count(self.threads)):
            for t in range(state.tree.n_levels - 1, -1, -1):
                short = Shortlist(pairs, nodes.astype(np.int64), np.arange(state.tree.sizes[t] + 1))
                scores += _logs(state.levels[t].logits(tokens, docs, short))
                nodes = state.tree.parents[t - 1][nodes] if t else nodes
        return scores, np.exp(scores)

    def _views(self, state: _State) -> list[View]:
        def opened(documents: Corpus) -> list[Any]:
            with torch_threads(thread_count(self.threads)):
                return self._opened(state, self._tokens(state, documents))

        levels = state.levels, state.tokenizer, state.max_tokens
        return [_LabelAttention(name="network", share=1.0, tree=state.tree, learnt=levels, walk=opened)]

    def _pack(self, state: _State) -> Packed:
        arrays, networks, tokenizer = state.tree.to_arrays(), [], ""
        for t, level in enumerate(state.levels):
            weights, tokenizer, config = level.network.state()
            parts = {f"network.{name}": array for name, array in weights.items()} | level.head.to_arrays()
            arrays |= {f"{t}.{name}": array for name, array in parts.items()}
            networks.append(config)
        values = {"networks": networks, "max_tokens": state.max_tokens}
        return Packed(arrays, {"tokenizer": Strings.of([tokenizer])}, values)

    def _unpack(self, packed: Packed, n_labels: int) -> _State:
        tree, levels, s = LabelTree.from_arrays(packed.arrays), list[AttentionLevel](), self.settings
        tokenizer, configs = packed.strings["tokenizer"][0], packed.values["networks"]
        if tree.n_labels != n_labels or len(configs) != tree.n_levels:
            raise ValueError(f"{len(configs)} networks for {tree.sizes} nodes, {n_labels:,} labels")
        for t, config in enumerate(configs):
            own = within(packed.arrays, f"{t}.")
            network = LstmNetwork.restore(within(own, "network."), tokenizer, config)
            rows, biases = own["rows"], own["biases"]
            if rows.shape != (tree.sizes[t], s.hidden) or biases.shape != rows.shape[:1]:
                raise ValueError(f"queries of {rows.shape} for {tree.sizes[t]:,} nodes")
            if network.width != s.hidden or rows.dtype != np.float32 or biases.dtype != np.float32:
                raise ValueError(f"a network of {network.width} and queries of {rows.dtype}")
            levels.append(AttentionLevel(network, Head(rows, biases, "sgd")))
        max_tokens = int(packed.values["max_tokens"])
        return _State(tree, levels, cutting(levels[0].network.tokenizer, max_tokens), max_tokens)


@dataclass(frozen=True, eq=False, kw_only=True)
class _LabelAttention(View):
    """A network for each level, and nodes that each attend to tokens in their own way."""

    tree: LabelTree
    learnt: tuple[list[AttentionLevel], Any, int]
    walk: Callable[[Corpus], list[Any]]
    how = "attention"

    def opened(self, documents: Corpus) -> list[Any]:
        return self.walk(documents)

    def told(self, document: Corpus, labels: Any) -> Told:
        assert document.texts is not None
        levels, tokenizer, max_tokens = self.learnt
        tokens = TokenStore.of(document.texts, tokenizer, max_tokens)
        paths = np.array([self.tree.path(int(label)) for label in labels])
        steps: list[list[Step]] = [[] for _ in labels]
        for t, level in enumerate(levels):
            scores, paid = level.attention(tokens, paths[:, t])
            for own, node, score, shares in zip(steps, paths[:, t].tolist(), scores, paid, strict=True):
                bias, chance = float(level.head.biases[node]), float(np.exp(_logs(score)))
                own.append(Step(t, node, float(score), chance, bias, tokens=shares))
        return Told(spans(tokenizer, document.texts[0]), steps)


def _children(clusters: Any, below: npt.NDArray[np.int64]) -> Shortlist:
    """Of some clusters of each document (CSR) that have these children."""
    return Shortlist(clusters.indptr.astype(np.int64), clusters.indices.astype(np.int64), below)


def _entries(short: Shortlist, n_nodes: int) -> Any:
    """The entries of a shortlist as a CSR matrix, documents x nodes."""
    marks = np.ones(short.n_entries, np.float32)
    return sp.csr_matrix((marks, short.rows.astype(np.int32), short.entry_bounds), (short.n_docs, n_nodes))


def _logs(logits: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Of the sigmoid."""
    return -np.logaddexp(np.float32(0), -logits)
