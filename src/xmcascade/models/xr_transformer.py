"""XR-Transformer (Zhang et al., 2021): one encoder fine-tuned from coarse to fine, then linear models.

A first tree is made from words. The encoder learns to tell its coarsest clusters apart, then, level by level,
the children of those clusters that it finds likely and of the true ones. What it then says of a document is
put beside the document's words; a second tree and the linear models on it are made from both.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from tempfile import TemporaryDirectory
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from xmcascade.corpus import Corpus
from xmcascade.features import LabelFeatures, MixedRows, Tfidf
from xmcascade.linear import LinearSettings, train_level
from xmcascade.models.background import Background
from xmcascade.models.fitting import FitRun, ModelSettings, Packed
from xmcascade.models.linear_stage import beside
from xmcascade.models.ranker import Ranker, RankerModel, RankerSettings, RankerState, by_column, by_relevance
from xmcascade.models.reading import EncoderSettings, Prepared, TextReader, sampled, words_of
from xmcascade.models.trees import encoder_tree, learnt_tree, planned_sizes, tree_arrays
from xmcascade.models.views import View
from xmcascade.neural import Head, Reader, RowOptimizer, Stage, Training, plan, torch_threads
from xmcascade.store import Checkpoint, within
from xmcascade.tree import LabelTree, TreeSettings

__all__ = ["PRESETS", "XRTransformer", "XRTransformerSettings", "XTransformer", "XTransformerSettings"]

log = logging.getLogger("xmcascade")

BOOTSTRAP = LinearSettings(threshold=0.0)
TFIDF = "tfidf."


@dataclass(frozen=True, kw_only=True)
class XRTransformerSettings(EncoderSettings):
    """Settings of XRTransformer; what is None is derived, and said why in the log and in the model."""

    tree: TreeSettings = TreeSettings()  # noqa: RUF009 - it is frozen
    """The first tree, on which the encoder is trained; its default has few levels."""
    label_features: LabelFeatures = "pifa"
    most_nodes: int = 32768
    """Levels with more are not trained on."""
    one_shot: bool = False
    """Whether to train on the finest level alone, in place of one after another."""
    fine_tune: bool = True
    """Whether the encoder is trained at all."""
    shortlist: int = 20
    """Clusters found for a document whose children are candidates at the next level."""
    cost_sensitive: bool = True
    """Whether a cluster with more of a document's labels weighs more (eq. 6)."""
    alpha: float = 0.125
    """Weight of candidates that are not true when cost-sensitive."""
    bootstrap: Literal["linear", "inherit", "none"] = "linear"
    """How the rows of a level start: solved on what the encoder says so far (eq. 11), as the rows of the
    clusters above, or small and random."""
    bootstrap_root: bool = True
    """Whether the first level's rows are solved too; not in the paper."""
    optimizer: RowOptimizer = "adagrad"
    use: Literal["both", "embedding", "tfidf"] = "both"
    """What the linear models read."""
    ranker: RankerSettings = RankerSettings(negatives="teacher+matcher")  # noqa: RUF009
    """The second tree and the linear models; its seed is the model's."""

    def check(self) -> None:
        """Refuse values out of range."""
        super().check()
        self.require(self.most_nodes >= 1, "most_nodes", "from 1 up")
        self.require(self.shortlist >= 1, "shortlist", "from 1 up")
        self.require(0 < self.alpha < 1e3, "alpha", "above 0, below 1000")


def _preset(
    first: tuple[int, ...],
    second: tuple[int, ...],
    rate: float,
    n_steps: int,
    n_docs: int,
    max_tokens: int,
    alpha: float | None,
    weight: float,
) -> XRTransformerSettings:
    """A row of Table 7; n_docs is the corpus's (Table 1), since steps are told here as passes over it."""
    batch = 256
    costs: dict[str, Any] = {"cost_sensitive": alpha is not None, "alpha": alpha or 1.0}
    linear = {"cost": 1 / (2 * weight)}  # the weight of the regularization term, as LIBLINEAR counts
    return XRTransformerSettings().with_values(
        {
            "encoder": "bert-base-uncased",
            "pooling": "cls",
            "encoder_dropout": 0.1,
            "max_tokens": max_tokens,
            "optimizer": "adam",
            "bootstrap_root": False,
            "tree": {"levels": first},
            "ranker": {"tree": {"levels": second}, "linear": linear, **costs},
            "training": {
                "epochs": n_steps * batch / n_docs,
                "short_tokens": 0,
                "batch": 32,
                "accumulate": batch // 32,
                "rate": rate,
                "token_rate": rate,
                "head_rate": rate,
            },
            **costs,
        }
    )


# Table 7 of the paper. Levels of labels are part of every tree and need not be told; the last level of the
# large corpora's first trees, 32,768 clusters, is the finest that the encoder is trained on.
PRESETS: dict[str, XRTransformerSettings] = {
    "eurlex-4k": _preset((16, 256), (4, 32, 256), 5e-5, 2400, 15_449, 128, 1.0, 0.5),
    "wiki10-31k": _preset((128, 2048), (8, 128, 2048), 1e-4, 4000, 14_146, 256, 0.25, 0.25),
    "amazoncat-13k": _preset((128, 1024), (128, 1024), 1e-4, 45_000, 1_186_239, 256, 2.0, 2.0),
    "wiki-500k": _preset((64, 512, 4096, 32768), (8, 256, 8192), 1e-4, 60_000, 1_779_881, 128, 0.25, 0.25),
    "amazon-670k": _preset((128, 2048, 32768), (8, 256, 8192), 1e-4, 20_000, 490_449, 128, None, 1.0),
    "amazon-3m": _preset((128, 2048, 32768), (8, 256, 8192), 1e-4, 30_000, 1_717_899, 128, 0.125, 0.125),
}
"""By corpus: XRTransformer(PRESETS["amazon-670k"])."""


@dataclass(frozen=True, eq=False, kw_only=True)
class _State(RankerState):
    text: TextReader | None


class XRTransformer(RankerModel[XRTransformerSettings, _State]):
    """An encoder learnt from coarse to fine, and linear models on what it says and on words.

    >>> XRTransformer(shortlist=10).settings.shortlist
    10
    """

    name: ClassVar[str] = "xr-transformer"
    settings_type: ClassVar[type[ModelSettings]] = XRTransformerSettings
    presets: ClassVar[Mapping[str, ModelSettings]] = PRESETS

    def _fit(self, corpus: Corpus, run: FitRun) -> _State:
        with TemporaryDirectory(prefix="xmcascade-") as folder, torch_threads(run.threads):
            return self._learn(run.taught(corpus), run, folder)

    def _learn(self, corpus: Corpus, run: FitRun, folder: str) -> _State:
        s = self.settings
        tfidf, words = made_words = words_of(corpus, s.features, run)
        text, x = None, np.zeros((corpus.n_docs, 0), np.float32)
        if s.use != "tfidf":
            made = Prepared.of(corpus, s, run, folder)
            reader = made.reader(((made.encoder.n_layers,),))
            if s.fine_tune:
                how = s.tree, s.label_features, s.seed, run, self._levels
                tree = encoder_tree(corpus, lambda: made_words, *how)
                self._fine_tune(corpus, made, reader, tree, run)
            x = reader.encode(made.tokens, None, f"{self.name}: reading", folder)[0]
            text = made.finished(reader)
        documents = self._features(words, x)
        ranker = s.ranker.with_values({"seed": s.seed})

        def tree_of(seed: int) -> LabelTree:
            how: dict[str, Any] = {"kind": ranker.label_features, "smoothing": ranker.smoothing}
            return learnt_tree(corpus, documents, None, ranker.tree, **how, seed=seed, threads=run.threads)

        learnt = Ranker.learn(ranker, documents, corpus.labels, tree_of, run, self.name)
        background = Background.of(documents.sparse, documents.dense, ranker.background, s.seed)
        known = tfidf if s.use != "embedding" else None
        return _State(text=text, tfidf=known, ranker=learnt, background=background)

    def _levels(self, n_labels: int) -> tuple[int, ...]:
        return plan.cluster_levels(n_labels)

    def _plan(self, corpus: Corpus, run: FitRun) -> None:
        s = self.settings
        if s.use == "tfidf" or not s.fine_tune:
            return
        sizes = planned_sizes(corpus, s.tree, run, self._levels)
        with TemporaryDirectory(prefix="xmcascade-") as folder, torch_threads(run.threads):
            some, share = sampled(corpus, s.seed)
            made = Prepared.of(some, s, run, folder)
            reader = made.reader(((made.encoder.n_layers,),))
            largest = max((size for size in sizes if size <= s.most_nodes), default=sizes[0])
            made.forecast(share, largest * reader.widths[0], reader, run)

    def _features(self, words: Any, x: npt.NDArray[Any]) -> MixedRows:
        """What the linear models read: words and the encoder's output, each of length 1, or one of them."""
        if self.settings.use == "tfidf":
            return MixedRows.of(words)
        if self.settings.use == "embedding":
            words = sp.csr_matrix((len(x), 0), dtype=np.float32)
        return beside(words, x, 1.0)

    def _begun(self, made: Prepared, reader: Reader, title: str) -> npt.NDArray[Any]:
        """What the encoder says of the documents by now: their beginnings tell enough to go on with."""
        return reader.encode(made.short, None, f"{title}: reading", made.folder)[0]

    def _files(self, corpus: Corpus) -> list[npt.NDArray[Any]]:
        s = self.settings
        return [*tree_arrays(corpus, s.tree), *tree_arrays(corpus, s.ranker.tree)]

    # Fine-tuning ------------------------------------------------------------------------------------------

    def _fine_tune(
        self, corpus: Corpus, made: Prepared, reader: Reader, tree: LabelTree, run: FitRun
    ) -> None:
        """Train the encoder on one level of the tree after another."""
        s, relevance = self.settings, tree.relevance(corpus.labels)
        used = [t for t in range(tree.n_levels) if tree.sizes[t] <= s.most_nodes] or [0]
        used = used[-1:] if s.one_shot else used
        docs = np.arange(corpus.n_docs)
        epochs, _ = made.epochs(docs, run, reader)
        run.derive(
            "stages", [tree.sizes[t] for t in used], f"nodes of the levels with up to {s.most_nodes:,}"
        )
        above: Any = sp.csr_matrix(np.ones((corpus.n_docs, 1), np.float32))
        head, x = None, None
        for number, t in enumerate(used):
            offsets = tree.offsets[t - 1] if number else np.array([0, tree.sizes[t]])
            weighed, alpha = self._weighed(relevance[t])
            head_now = made.head(tree.sizes[t], reader.widths[0], run, optimizer=s.optimizer)
            stage = Stage(head_now, above, offsets, alpha)
            title = f"{self.name}: {tree.sizes[t]:,} nodes"
            training = Training(
                reader=reader, cascade=stage, tokens=made.tokens, short=made.short, relevance=[weighed],
                docs=docs, dropouts=(0.0,), settings=s.training, seed=s.seed + number, title=title,
                best=Checkpoint(f"{made.folder}/best", ""),
                kept=run.checkpoint and run.checkpoint.part(f"{t}"),
            )  # fmt: skip
            log.info("%s: training will take about %s", title, training.memory())
            start = partial(self._start, made, reader, stage, weighed, head, x, run, title)
            training.run(epochs / len(used), start)
            if number + 1 < len(used):
                x = self._begun(made, reader, title)
                found = stage.found([x], s.shortlist)
                above = found + (relevance[t] > 0).astype(np.float32)
                above.sort_indices()
                head = stage.head

    def _start(
        self,
        made: Prepared,
        reader: Reader,
        stage: Stage,
        weighed: Any,
        above: Head | None,
        x: npt.NDArray[Any] | None,
        run: FitRun,
        title: str,
    ) -> None:
        """Give a stage's head its first rows; x: what the encoder says of the documents by now, if known."""
        how, head = self.settings.bootstrap, stage.head
        if how == "none" or (above is None and (how == "inherit" or not self.settings.bootstrap_root)):
            return
        if how == "inherit" and above is not None:
            parents = np.repeat(np.arange(len(stage.offsets) - 1), np.diff(stage.offsets))
            learnt = above.to_arrays()
            head.rows[:], head.biases[:] = (learnt[name][parents] for name in ("rows", "biases"))
            head.written()
            return
        x = self._begun(made, reader, title) if x is None else x
        x = np.asarray(x, np.float32)
        length = np.float32(np.linalg.norm(x, axis=1).mean() or 1)  # the machine expects about 1
        solved = train_level(
            x / length,
            by_column(stage.reached),
            by_column(weighed),
            stage.offsets,
            BOOTSTRAP.with_values({"negative_cost": stage.alpha}),
            seed=self.settings.seed,
            threads=run.threads,
            title=f"{title}: first rows",
        )
        head.rows[:], head.biases[:] = solved.dense / length, solved.biases
        head.written()

    def _weighed(self, relevance: Any) -> tuple[Any, float]:
        """How much true nodes count, and the others."""
        if self.settings.cost_sensitive:
            return by_relevance(relevance), self.settings.alpha
        return (relevance > 0).astype(np.float32), 1.0

    # Answers and keeping ----------------------------------------------------------------------------------

    def _queries(self, state: _State, documents: Corpus) -> MixedRows:
        assert documents.texts is not None  # the contract has checked
        words = sp.csr_matrix((documents.n_docs, 0), dtype=np.float32)
        x = np.zeros((documents.n_docs, 0), np.float32)
        if state.tfidf is not None:
            words = state.tfidf.transform(documents.texts)
        if state.text is not None:
            (x,) = state.text.read(documents.texts, self.threads)
        return self._features(words, x)

    def _views(self, state: _State, name: str = "", **more: Any) -> list[View]:
        names = {"both": "words and encoder", "embedding": "encoder", "tfidf": "words"}
        more |= {"text": state.text, "encoder": self.settings.encoder}
        return super()._views(state, name or names[self.settings.use], **more)

    def _pack(self, state: _State) -> Packed:
        packed = state.text.pack() if state.text is not None else Packed({}, {}, {})
        packed.arrays.update(state.to_arrays())
        if state.tfidf is not None:
            arrays, strings = state.tfidf.state()
            packed.arrays.update({TFIDF + name: array for name, array in arrays.items()})
            packed.strings.update({TFIDF + name: texts for name, texts in strings.items()})
        return packed

    def _unpack(self, packed: Packed, n_labels: int) -> _State:
        s, text, tfidf = self.settings, None, None
        if s.use != "tfidf":
            text = TextReader.unpack(packed, s.pooling)
        if s.use != "embedding":
            parts = within(packed.arrays, TFIDF), within(packed.strings, TFIDF)
            tfidf = Tfidf.restore(s.features, *parts, self.threads)
        sizes = tfidf.n_features if tfidf else 0, text.widths[0] if text else 0
        ranker = Ranker.from_arrays(s.ranker, packed.arrays, n_labels, *sizes)
        background = Background.from_arrays(packed.arrays, *sizes)
        return _State(text=text, tfidf=tfidf, ranker=ranker, background=background)


@dataclass(frozen=True, kw_only=True)
class XTransformerSettings(XRTransformerSettings):
    """Settings of XTransformer: those of XRTransformer, with other defaults."""

    one_shot: bool = True
    most_nodes: int = 8192
    cost_sensitive: bool = False
    bootstrap: Literal["linear", "inherit", "none"] = "none"


class XTransformer(XRTransformer):
    """The encoder learns one level of clusters, then come linear models (Chang et al., 2020).

    >>> XTransformer().settings.one_shot
    True
    """

    name: ClassVar[str] = "x-transformer"
    settings_type: ClassVar[type[ModelSettings]] = XTransformerSettings
    presets: ClassVar[Mapping[str, ModelSettings]] = {}

    def _levels(self, n_labels: int) -> tuple[int, ...]:
        return plan.one_level(n_labels)
