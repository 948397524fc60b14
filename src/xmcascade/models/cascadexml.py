"""CascadeXML (Kharbanda et al., 2022): one encoder, a head at every level of the label tree, learnt together.

Each level reads its own encoder layers; what a level finds likely, the next one looks at closely. Prediction
is one pass through the encoder and one walk down the tree.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from xmcascade.corpus import Corpus
from xmcascade.errors import SettingError
from xmcascade.evaluate import WORTH, Ranking
from xmcascade.features import MixedRows, Tfidf
from xmcascade.linear import LinearSettings
from xmcascade.models.background import Background, home_clusters
from xmcascade.models.base import Model
from xmcascade.models.cascade_settings import (
    PRESETS,
    CascadeXMLSettings,
    CascadeXMLTfidfSettings,
    LightXMLSettings,
)
from xmcascade.models.fitting import FitRun, ModelSettings, Packed
from xmcascade.models.linear_stage import RESCORED, LinearStage, beside, suited
from xmcascade.models.ranker import best_of, rarity, rows_of
from xmcascade.models.reading import Prepared, TextReader, sampled, words_of
from xmcascade.models.trees import encoder_tree, planned_sizes, tree_arrays
from xmcascade.models.views import CascadeView, LinearView, View
from xmcascade.neural import (
    NETWORKS,
    Cascade,
    CascadeTraining,
    Powers,
    Reader,
    TokenStore,
    Trial,
    learn_heads,
    new_rows,
    plan,
    start_biases,
    start_rows,
    torch_threads,
)
from xmcascade.store import Checkpoint
from xmcascade.tree import LabelTree

__all__ = ["CascadeXML", "CascadeXMLTfidf", "LightXML"]

log = logging.getLogger("xmcascade")

ENOUGH = "about 1,000 candidates at the second level, twice as many at each further one"


@dataclass(frozen=True, eq=False)
class _State:
    text: TextReader
    cascade: Cascade
    powers: Powers
    background: Background
    second: LinearStage | None = None


class CascadeXML(Model[CascadeXMLSettings, _State]):
    """An encoder and a cascade of heads.

    >>> CascadeXML(training={"epochs": 2.0}).settings.training.epochs
    2.0
    """

    name: ClassVar[str] = "cascadexml"
    settings_type: ClassVar[type[ModelSettings]] = CascadeXMLSettings
    presets: ClassVar[Mapping[str, ModelSettings]] = PRESETS

    def _fit(self, corpus: Corpus, run: FitRun) -> _State:
        with TemporaryDirectory(prefix="xmcascade-") as folder, torch_threads(run.threads):
            return self._learn(corpus, run, folder)

    def _learn(self, corpus: Corpus, run: FitRun, folder: str) -> _State:
        s = self.settings
        made = self._prepared(corpus, run, folder)
        docs, held = run.docs(corpus), run.held
        words = cache(lambda: words_of(corpus, s.features, run))
        tree = encoder_tree(corpus, words, s.tree, s.label_features, s.seed, run, self._levels)
        reader = made.reader(self._layers(tree.sizes, made.encoder.n_layers, run))
        relevance = tree.relevance(corpus.labels)
        cascade = self._cascade(tree, made, reader, run)
        if s.propensity:
            cascade.weights = rarity(corpus.labels)[tree.order]
        powers = plan.powers("last" if s.score == "chosen" else s.score, tree.n_levels)
        dropouts = run.settle("dropouts", s.dropouts, list(plan.dropouts(tree.n_levels)), "few epochs")
        dropouts = tuple(_one_each(dropouts, tree.n_levels, "dropouts"))
        training = CascadeTraining(
            reader=reader, cascade=cascade, tokens=made.tokens, short=made.short, relevance=relevance,
            docs=docs, held=held, dropouts=dropouts, powers=powers,
            settings=s.training, seed=s.seed, title=self.name,
            best=run.checkpoint or Checkpoint(f"{folder}/best", ""), kept=run.checkpoint,
        )  # fmt: skip
        epochs, share = made.epochs(docs, run, reader)
        # Not among the derived values: it depends on the process, and equal models are equal bytes.
        log.info("%s: training will take about %s", self.name, training.memory())
        history = training.run(epochs, lambda: self._start(training, share, made, corpus))
        if history:
            run.derive("history", history, "what held-out documents said as training went on")
        keeps = cascade.keeps
        some = held if len(held) else docs[: s.background]
        xs = reader.encode(made.tokens, some)
        trial = training.trial(xs) if len(held) else None
        if trial is not None and tree.n_levels > 1:
            powers = self._chosen(trial, powers, run)
        second, seen = None, sp.csr_matrix((len(some), 0), dtype=np.float32)
        if s.tfidf:
            features, linear = suited(corpus, s.features, s.linear, run)
            told = words() if features == s.features else words_of(corpus, features, run)
            seen = told[1][some]
            second = replace(self._second(corpus, training, told, linear, keeps, folder, run), powers=powers)
            if trial is not None:
                second = self._weighed(second, trial, beside(seen, xs[-1], s.embedding), run)
        background = Background.of(seen, xs[-1], s.background, s.seed)
        arrays = cascade.to_arrays(narrow=s.precision is None)
        cascade = Cascade.from_arrays(arrays, reader.widths, cascade.keeps, self.threads)
        return _State(made.finished(reader), cascade, powers, background, second)

    def _start(self, training: CascadeTraining, share: float, made: Prepared, corpus: Corpus) -> None:
        """Prepare the heads on a share of the documents, without training the encoder."""
        s, docs, cascade = self.settings, training.docs, training.cascade
        start_biases(cascade, training.relevance, docs)
        if s.init == "random" and not s.training.head_epochs:
            return
        some = np.random.default_rng(s.seed).permutation(len(docs))[: round(share * len(docs))]
        docs = docs[np.sort(some)]
        xs = training.reader.encode(training.short, docs, f"{self.name}: reading", made.folder)
        what = cascade, training.relevance, docs
        if s.init == "documents":
            start_rows(*what, xs)
        elif s.init != "random":
            told, of_texts = self._of_texts(training, made, corpus)
            if s.init == "both":
                told = [sp.vstack([a[docs], b]).tocsr() for a, b in zip(what[1], told, strict=True)]
                of_texts = [np.concatenate(pair) for pair in zip(xs, of_texts, strict=True)]
            start_rows(cascade, told, np.arange(len(of_texts[0])), of_texts)
        how: dict[str, Any] = {"epochs": s.training.head_epochs, "rate": training.head_rate}
        learn_heads(*what, xs, **how, seed=s.seed, title=f"{self.name}: heads")

    def _of_texts(
        self, training: CascadeTraining, made: Prepared, corpus: Corpus
    ) -> tuple[list[Any], list[npt.NDArray[Any]]]:
        """The labels' own texts as documents: their nodes at each level, and what the levels read of them."""
        own = corpus.take(np.arange(0)).with_label_documents()
        assert own.texts is not None
        folder = Path(made.folder, "labels")
        folder.mkdir()
        tokens = TokenStore.of(own.texts, made.tokenizer, made.max_tokens, folder)
        xs = training.reader.encode(tokens, None, f"{self.name}: reading labels", folder)
        return training.cascade.tree.relevance(own.labels), xs

    def _chosen(self, trial: Trial, powers: Powers, run: FitRun) -> Powers:
        """What is better settled after training: clusters that go on, and how levels are combined."""
        ways = trial.ways() if self.settings.score == "chosen" else [powers]
        if self.settings.shortlists is None:
            recall = round(100 * trial.widen(ways), 2)
            run.derive("shortlist_recall", recall, "true clusters of held-out documents that go on, in %")
            run.derive("predict_shortlists", list(trial.cascade.keeps), "so that few true ones are missed")
        if self.settings.score != "chosen":
            return powers
        best, quality = trial.best(ways)
        reason = f"{WORTH} {100 * quality:.1f} on held-out documents, with the last level alone"
        run.derive("powers", list(best), f"{reason} {100 * trial.quality(ways[0]):.1f}")
        return best

    def _weighed(self, second: LinearStage, trial: Trial, features: MixedRows, run: FitRun) -> LinearStage:
        """Linear rows with the share that is best on held-out documents with these features."""
        ways = trial.ways() if self.settings.score == "chosen" else [second.powers]
        found = {powers: _candidates(trial.cascade, trial.xs, powers, RESCORED) for powers in ways}
        return second.chosen(features, found, trial.labels, trial.inverse, run)

    def _second(
        self,
        corpus: Corpus,
        training: CascadeTraining,
        words: tuple[Tfidf, Any],
        linear: LinearSettings,
        keeps: tuple[int, ...],
        folder: str,
        run: FitRun,
    ) -> LinearStage:
        """Linear rows, from what the cascade now opens for the documents that it learnt from."""
        s, cascade, docs = self.settings, training.cascade, training.docs
        tfidf, documents = words
        log.info("%s: the cascade has learnt; linear rows on tf-idf follow", self.name)
        # Which clusters are opened can be told from the beginnings of documents too.
        tokens = training.tokens if s.embedding else training.short
        xs = training.reader.encode(tokens, docs, f"{self.name}: reading", folder)
        opened = (
            cascade.opened(xs, keeps)[-1] if keeps else sp.csr_matrix(np.ones((len(docs), 1), np.float32))
        )
        what = tfidf, beside(documents[docs], xs[-1], s.embedding), corpus.labels[docs]
        return LinearStage.learn(
            *what, cascade.tree, opened, linear, s.embedding, run, self.name, s.propensity
        )

    def _prepared(self, corpus: Corpus, run: FitRun, folder: str) -> Prepared:
        return Prepared.of(corpus, self.settings, run, folder)

    def _files(self, corpus: Corpus) -> list[npt.NDArray[Any]]:
        return tree_arrays(corpus, self.settings.tree)

    def _levels(self, n_labels: int) -> tuple[int, ...]:
        return plan.cluster_levels(n_labels)

    def _reads(self, n_levels: int, n_layers: int) -> tuple[tuple[int, ...], ...]:
        return plan.layers_read(n_levels, n_layers)

    def _layers(self, sizes: Sequence[int], n_layers: int, run: FitRun) -> tuple[tuple[int, ...], ...]:
        reads = [list(layers) for layers in self._reads(len(sizes), n_layers)]
        reason = f"{len(sizes)} levels on {n_layers} encoder layers"
        chosen = run.settle("layers", self.settings.layers, reads, reason)
        return tuple(map(tuple, _one_each(chosen, len(sizes), "layers")))

    def _keeps(self, sizes: Sequence[int], run: FitRun) -> tuple[int, ...]:
        keeps = run.settle("shortlists", self.settings.shortlists, list(plan.shortlists(sizes)), ENOUGH)
        return tuple(_one_each(keeps, len(sizes) - 1, "shortlists"))

    def _rows(self, sizes: Sequence[int], width: int, run: FitRun) -> dict[str, Any]:
        """How rows are kept and trained."""
        s, wide = self.settings, plan.precision(sizes[-1], width)
        return {
            "optimizer": run.settle("optimizer", s.optimizer, *plan.row_optimizer()),
            "precision": run.settle("precision", s.precision, *wide),
        }

    def _cascade(self, tree: LabelTree, made: Prepared, reader: Reader, run: FitRun) -> Cascade:
        keeps, how = self._keeps(tree.sizes, run), self._rows(tree.sizes, reader.widths[-1], run)
        sizes = zip(tree.sizes, reader.widths, strict=True)
        heads = [made.head(size, width, run, **how) for size, width in sizes]
        return Cascade(tree, heads, keeps, self.settings.rescale, run.threads)

    def _plan(self, corpus: Corpus, run: FitRun) -> None:
        sizes = planned_sizes(corpus, self.settings.tree, run, self._levels)
        with TemporaryDirectory(prefix="xmcascade-") as folder, torch_threads(run.threads):
            some, share = sampled(corpus, self.settings.seed)
            made = self._prepared(some, run, folder)
            reader = made.reader(self._layers(sizes, made.encoder.n_layers, run))
            self._keeps(sizes, run)
            self._rows(sizes, reader.widths[-1], run)
            n_weights = sum(size * width for size, width in zip(sizes, reader.widths, strict=True))
            made.forecast(share, n_weights, reader, run)

    @property
    def _chooses(self) -> bool:
        return True

    # Answers ----------------------------------------------------------------------------------------------

    def _read(self, state: _State, documents: Corpus) -> list[npt.NDArray[np.float32]]:
        assert documents.texts is not None  # the contract has checked
        return state.text.read(documents.texts, self.threads)

    def _rank(self, state: _State, documents: Corpus, k: int) -> Ranking:
        return self._found(state, documents, k, None)

    def _rank_among(self, state: _State, documents: Corpus, k: int, allowed: Any) -> Ranking:
        return self._found(state, documents, k, state.cascade.masks(allowed))

    def _found(self, state: _State, documents: Corpus, k: int, masks: Any) -> Ranking:
        xs, second = self._read(state, documents), state.second
        if second is None:
            labels, scores = state.cascade.find(xs, state.powers, k, masks)
        else:
            assert documents.texts is not None
            candidates, scores = _candidates(state.cascade, xs, second.powers, max(k, RESCORED), masks)
            features = second.features(documents.texts, xs[-1])
            labels, scores = best_of(candidates, second.mixed(features, candidates, scores, self.threads), k)
            scores[labels < 0] = -np.inf
        return Ranking(labels, scores, np.exp(scores))

    def _score(self, state: _State, documents: Corpus, candidates: Any) -> tuple[Any, Any]:
        xs, second = self._read(state, documents), state.second
        scores = state.cascade.score(xs, second.powers if second else state.powers, candidates)
        if second is not None:
            assert documents.texts is not None
            features = second.features(documents.texts, xs[-1])
            scores = second.mixed(features, candidates, scores, self.threads)
        return scores, np.exp(scores)

    def _views(self, state: _State) -> list[View]:
        tree, second, share = state.cascade.tree, state.second, state.second.share if state.second else 0.0
        how: dict[str, Any] = {"tree": tree, "text": state.text, "threads": self.threads}
        how["encoder"] = self.settings.encoder
        name = "network" if state.text.family in NETWORKS else "encoder"
        views: list[View] = [CascadeView(name=name, share=1 - share, cascade=state.cascade, **how)]
        if second is not None:
            if not second.embedding:
                how["text"] = None
            queries = partial(self._words, state, second)
            how |= {"terms": second.tfidf.terms, "weights": second.weights, "combine": second.hinge}
            views.append(LinearView(name="words", share=share, queries=queries, **how))
        return views

    def _words(self, state: _State, second: LinearStage, documents: Corpus) -> MixedRows:
        """What linear rows read."""
        assert documents.texts is not None
        last = self._read(state, documents)[-1] if second.embedding else np.zeros((0, 0), np.float32)
        return second.features(documents.texts, last)

    def _add(self, state: _State, examples: Corpus, n_docs: int, run: FitRun) -> _State:
        xs, labels, known = self._read(state, examples), examples.labels, state.background.checked().rows
        tree, homes = state.cascade.tree, np.zeros(labels.shape[1], np.int64)
        if tree.n_levels > 1:
            clusters = state.cascade.clusters()
            last = [0.0] * (tree.n_levels - 2) + [1.0]
            found, logs = clusters.find(xs[:-1], last, state.cascade.keeps[-1])
            homes = home_clusters(found, np.exp(logs), labels)
        tree, sources = tree.grown(homes)
        how: dict[str, Any] = {"seed": self.settings.seed, "threads": run.threads}
        title = f"{self.name}: new labels"
        rows, biases = new_rows(xs[-1], labels, known.dense, n_docs, **how, title=title)
        cascade, second = state.cascade.rearranged(tree, sources, rows, biases), state.second
        if second is not None:
            assert examples.texts is not None
            seen = beside(known.sparse, known.dense, second.embedding)
            features = second.features(examples.texts, xs[-1])
            new = Background(seen).learn(features, labels, second.linear, run, self.name)
            second = second.rearranged(tree, sources, new)
        return replace(state, cascade=cascade, second=second)

    def _remove(self, state: _State, kept: Any) -> _State:
        tree, sources = state.cascade.tree.pruned(kept)
        second = state.second and state.second.rearranged(tree, sources)
        return replace(state, cascade=state.cascade.rearranged(tree, sources), second=second)

    # Keeping ----------------------------------------------------------------------------------------------

    def _pack(self, state: _State) -> Packed:
        arrays, strings, values = state.text.pack()
        arrays |= state.cascade.to_arrays() | state.background.to_arrays()
        values |= {"keeps": state.cascade.keeps, "powers": state.powers}
        if state.second is not None:
            more, texts, values["second"] = state.second.to_parts()
            arrays |= more
            strings |= texts
        return Packed(arrays, strings, values)

    def _unpack(self, packed: Packed, n_labels: int) -> _State:
        s, values, text = self.settings, packed.values, TextReader.unpack(packed, self.settings.pooling)
        keeps, powers = [int(keep) for keep in values["keeps"]], tuple(map(float, values["powers"]))
        widths = text.widths
        cascade = Cascade.from_arrays(packed.arrays, widths, keeps, self.threads)
        if cascade.tree.n_labels != n_labels or len(powers) != cascade.tree.n_levels or min(powers) < 0:
            raise ValueError(f"a cascade of {cascade.tree.n_labels:,} labels, powers {powers}")
        second = None
        if s.tfidf:
            how = cascade.tree, s.embedding, widths[-1], self.threads
            second = LinearStage.from_parts(*how, packed.arrays, packed.strings, values["second"])
        n_words = second.tfidf.n_features if second else 0
        background = Background.from_arrays(packed.arrays, n_words, widths[-1])
        return _State(text, cascade, powers, background, second)


class CascadeXMLTfidf(CascadeXML):
    """CascadeXML whose finds are scored again by linear rows on tf-idf: both opinions, mixed.

    >>> CascadeXMLTfidf().settings.tfidf
    True
    """

    name: ClassVar[str] = "cascadexml-tfidf"
    settings_type: ClassVar[type[ModelSettings]] = CascadeXMLTfidfSettings
    presets: ClassVar[Mapping[str, ModelSettings]] = {}


class LightXML(CascadeXML):
    """One level of clusters, and every level reads the last five layers (Jiang et al., 2021).

    Negatives are dynamic, as always here. What the paper has beside it (a bottleneck below the labels' rows,
    and its schedule) is not.

    >>> LightXML().settings.score
    'parent'
    """

    name: ClassVar[str] = "lightxml"
    settings_type: ClassVar[type[ModelSettings]] = LightXMLSettings
    presets: ClassVar[Mapping[str, ModelSettings]] = {}

    def _levels(self, n_labels: int) -> tuple[int, ...]:
        return plan.one_level(n_labels)

    def _reads(self, n_levels: int, n_layers: int) -> tuple[tuple[int, ...], ...]:
        return (tuple(range(max(1, n_layers - 4), n_layers + 1)),) * n_levels


def _candidates(
    cascade: Cascade, xs: Any, powers: tuple[float, ...], k: int, masks: Any = None
) -> tuple[Any, npt.NDArray[np.float32]]:
    """The k best labels of each document as a CSR matrix, and their scores."""
    labels, scores = cascade.find(xs, powers, k, masks)
    return rows_of(labels, cascade.tree.n_labels), scores[labels >= 0]


def _one_each(values: tuple[Any, ...], n_levels: int, name: str) -> tuple[Any, ...]:
    if len(values) != n_levels:
        raise SettingError(f"{name} has {len(values)} values", remedy=f"give {n_levels}, one for each level")
    return values
