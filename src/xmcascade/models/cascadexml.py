"""CascadeXML (Kharbanda et al., 2022): one encoder, a head at every level of the label tree, learnt together.

Each level reads its own encoder layers; what a level finds likely, the next one looks at closely. Prediction
is one pass through the encoder and one walk down the tree.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from xmcascade.corpus import Corpus
from xmcascade.errors import DataError, SettingError
from xmcascade.evaluate import Ranking
from xmcascade.features import Tfidf, label_features
from xmcascade.kernels.parallel import thread_count
from xmcascade.models.base import FitRun, Model, ModelSettings, Packed
from xmcascade.models.cascade_settings import PRESETS, CascadeXMLSettings
from xmcascade.neural import (
    Cascade,
    Encoder,
    Head,
    Reader,
    TokenStore,
    TorchHead,
    Training,
    learn_heads,
    plan,
    start_biases,
    start_rows,
    torch_threads,
)
from xmcascade.store import Checkpoint, Strings
from xmcascade.tree import LabelTree, TreeSettings, build_tree, read_tree

__all__ = ["CascadeXML"]

HELD_SHARE, MOST_HELD, FEW_DOCS = 0.03, 2000, 200


@dataclass(frozen=True, eq=False)
class _State:
    reader: Reader
    max_tokens: int
    cascade: Cascade
    powers: tuple[float, ...]


class CascadeXML(Model[CascadeXMLSettings, _State]):
    """An encoder and a cascade of heads.

    >>> CascadeXML(training={"epochs": 2.0}).settings.training.epochs
    2.0
    """

    name: ClassVar[str] = "cascadexml"
    settings_type: ClassVar[type[ModelSettings]] = CascadeXMLSettings
    presets: ClassVar[Mapping[str, ModelSettings]] = PRESETS

    def _fit(self, corpus: Corpus, run: FitRun) -> _State:
        if corpus.texts is None:
            raise DataError("an encoder needs texts, the corpus has only features", remedy="give texts")
        with TemporaryDirectory(prefix="xmcascade-") as folder, torch_threads(run.threads):
            return self._learn(corpus, run, folder)

    def _learn(self, corpus: Corpus, run: FitRun, folder: str) -> _State:
        s = self.settings
        assert corpus.texts is not None
        encoder = Encoder.load(s.encoder)
        max_tokens = self._max_tokens(encoder, run)
        tokens = TokenStore.of(corpus.texts, encoder.tokenizer, max_tokens, folder)
        docs, held = self._held_out(corpus, run)
        tree = self._tree(corpus, docs, run)
        reads = self._layers(tree, encoder, run)
        encoder.cut(reads)
        encoder.set_dropout(s.encoder_dropout)
        encoder.freeze(s.freeze_layers)
        encoder.model.to(s.device)
        reader = Reader(encoder, reads, s.pooling)
        if s.freeze_layers and min(map(min, reads)) >= s.freeze_layers:
            reader.store(tokens, folder)
        relevance = tree.relevance(corpus.labels)
        cascade = self._cascade(tree, reader, run)
        powers = plan.powers("last" if s.score == "chosen" else s.score, tree.n_levels)
        training = Training(
            reader, cascade, tokens, relevance, docs, held, s.training, self._dropouts(tree, run), powers,
            s.seed, run.checkpoint or Checkpoint(f"{folder}/best", ""), run.checkpoint, self.name,
        )  # fmt: skip
        epochs = s.training.epochs
        if epochs is None:
            epochs = run.derive("epochs", *plan.epochs(int(tokens.lengths[docs].sum()), len(docs)))
        self._memory(training, run)
        history = training.run(epochs, lambda: self._start(training, folder))
        if history:
            run.derive("history", history, "what held-out documents said as training went on")
        if s.score == "chosen" and len(held) and tree.n_levels > 1:
            powers = tuple(run.derive("powers", *training.chosen_powers()))
        encoder.model.to("cpu")
        learnt = [head.to_arrays() for head in cascade.heads]
        heads = [Head(own["rows"], own["biases"], "sgd", threads=run.threads) for own in learnt]
        reader, cascade = replace(reader, stored=None), replace(cascade, heads=heads)
        return _State(reader, max_tokens, cascade, powers)

    def _start(self, training: Training, folder: str) -> None:
        """Prepare the heads, without training the encoder."""
        s = self.settings
        what = training.cascade, training.relevance, training.docs
        start_biases(*what)
        if s.init == "documents" or s.training.head_epochs:
            xs = training.reader.encode(training.tokens, training.docs, f"{self.name}: reading", folder)
            if s.init == "documents":
                start_rows(*what, xs)
            how: dict[str, Any] = {"epochs": s.training.head_epochs, "rate": training.head_rate}
            learn_heads(*what, xs, **how, seed=s.seed, title=f"{self.name}: heads")

    # What is derived --------------------------------------------------------------------------------------

    def _max_tokens(self, encoder: Encoder, run: FitRun) -> int:
        s = self.settings
        if s.max_tokens is not None:
            return min(s.max_tokens, encoder.max_tokens)
        return int(run.derive("max_tokens", min(128, encoder.max_tokens), "as in the paper"))

    def _held_out(self, corpus: Corpus, run: FitRun) -> tuple[Any, Any]:
        """Documents to learn from, and documents to choose on."""
        every = np.arange(corpus.n_docs)
        n_held = min(MOST_HELD, int(HELD_SHARE * corpus.n_docs))
        if corpus.n_docs < FEW_DOCS:
            return every, every[:0]
        try:
            held = corpus.split_mask(n_held / corpus.n_docs, seed=self.settings.seed)
        except DataError:  # nearly all documents are alike
            return every, every[:0]
        run.derive("held_out", int(held.sum()), "documents to choose on")
        return every[~held], every[held]

    def _tree(self, corpus: Corpus, docs: Any, run: FitRun) -> LabelTree:
        s = self.settings
        if s.tree.file is not None:
            return read_tree(s.tree.file, corpus.label_names)
        settings = s.tree
        if settings == TreeSettings():
            levels = plan.cluster_levels(corpus.n_labels)
            run.derive("tree.levels", list(levels), f"{corpus.n_labels:,} labels")
            if not levels:
                return LabelTree.flat(corpus.n_labels)
            settings = settings.with_values({"levels": levels})
        assert corpus.texts is not None
        tfidf = Tfidf(
            s.features if corpus.n_docs >= 1000 else s.features.with_values({"min_df": 1}),
            threads=run.threads,
        )
        own = tfidf.fit_transform(corpus.texts)
        texts = None if corpus.label_texts is None else tfidf.transform(corpus.label_texts)
        of_labels = label_features(s.label_features, documents=own, labels=corpus.labels, texts=texts)
        return build_tree(settings, of_labels, seed=s.seed, threads=run.threads)

    def _files(self, corpus: Corpus) -> list[npt.NDArray[Any]]:
        file = self.settings.tree.file
        return [] if file is None else [*read_tree(file, corpus.label_names).to_arrays().values()]

    def _layers(self, tree: LabelTree, encoder: Encoder, run: FitRun) -> tuple[tuple[int, ...], ...]:
        if self.settings.layers is not None:
            return _one_each(self.settings.layers, tree.n_levels, "layers")
        reads = plan.layers_read(tree.n_levels, encoder.n_layers)
        reason = f"{tree.n_levels} levels on {encoder.n_layers} encoder layers"
        return tuple(map(tuple, run.derive("layers", [list(layers) for layers in reads], reason)))

    def _dropouts(self, tree: LabelTree, run: FitRun) -> tuple[float, ...]:
        if self.settings.dropouts is not None:
            return _one_each(self.settings.dropouts, tree.n_levels, "dropouts")
        return tuple(run.derive("dropouts", list(plan.dropouts(tree.n_levels)), "few epochs need little"))

    def _cascade(self, tree: LabelTree, reader: Reader, run: FitRun) -> Cascade:
        s = self.settings
        keeps = plan.shortlists(tree.sizes) if s.shortlists is None else s.shortlists
        keeps = _one_each(keeps, tree.n_levels - 1, "shortlists")
        if s.shortlists is None and keeps:
            run.derive("shortlists", list(keeps), "enough that few true clusters are missed")
        optimizer, precision = s.optimizer, s.precision
        if optimizer is None:
            optimizer = run.derive("optimizer", *plan.row_optimizer(tree.n_labels))
        if precision is None:
            precision = run.derive("precision", *plan.precision(tree.n_labels, reader.encoder.width))
        how: dict[str, Any] = {"optimizer": optimizer, "precision": precision, "decay": s.training.decay}
        if s.device != "cpu":
            how["device"] = s.device
        kind: type[Head] = Head if s.device == "cpu" else TorchHead
        heads = [
            kind.random(size, reader.encoder.width * len(layers), run.rng, **how, threads=run.threads)
            for size, layers in zip(tree.sizes, reader.reads, strict=True)
        ]
        return Cascade(tree, heads, keeps, s.rescale, run.threads)

    def _memory(self, training: Training, run: FitRun) -> None:
        memory = training.memory()
        run.derive("memory", memory.total, str(memory))

    # Answers ----------------------------------------------------------------------------------------------

    def _read(self, state: _State, documents: Corpus) -> list[npt.NDArray[np.float32]]:
        assert documents.texts is not None  # the contract has checked
        tokens = TokenStore.of(documents.texts, state.reader.encoder.tokenizer, state.max_tokens)
        with torch_threads(thread_count(self.threads)):
            return state.reader.encode(tokens)

    def _rank(self, state: _State, documents: Corpus, k: int) -> Ranking:
        labels, scores = state.cascade.find(self._read(state, documents), state.powers, k)
        return Ranking(labels, scores, np.exp(scores))

    def _rank_among(self, state: _State, documents: Corpus, k: int, allowed: Any) -> Ranking:
        masks = state.cascade.masks(allowed)
        labels, scores = state.cascade.find(self._read(state, documents), state.powers, k, masks)
        return Ranking(labels, scores, np.exp(scores))

    def _score(self, state: _State, documents: Corpus, candidates: Any) -> tuple[Any, Any]:
        scores = state.cascade.score(self._read(state, documents), state.powers, candidates)
        return scores, np.exp(scores)

    # Keeping ----------------------------------------------------------------------------------------------

    def _pack(self, state: _State) -> Packed:
        weights, tokenizer, config = state.reader.encoder.state()
        arrays = {f"encoder.{name}": array for name, array in weights.items()}
        arrays.update(state.cascade.tree.to_arrays())
        for t, head in enumerate(state.cascade.heads):
            arrays.update({f"head.{t}.{name}": array for name, array in head.to_arrays().items()})
        values = {
            "encoder": config,
            "reads": state.reader.reads,
            "max_tokens": state.max_tokens,
            "keeps": state.cascade.keeps,
            "powers": state.powers,
        }
        return Packed(arrays, {"tokenizer": Strings.of([tokenizer])}, values)

    def _unpack(self, packed: Packed, n_labels: int) -> _State:
        values = packed.values
        weights = {
            name.removeprefix("encoder."): array
            for name, array in packed.arrays.items()
            if name.startswith("encoder.")
        }
        encoder = Encoder.restore(weights, packed.strings["tokenizer"][0], values["encoder"])
        tree = LabelTree.from_arrays(packed.arrays)
        if tree.n_labels != n_labels:
            raise ValueError(f"a tree of {tree.n_labels:,} labels for {n_labels:,}")
        reader = Reader(encoder, tuple(map(tuple, values["reads"])), self.settings.pooling)
        heads = []
        for t, (size, layers) in enumerate(zip(tree.sizes, reader.reads, strict=True)):
            rows, biases = packed.arrays[f"head.{t}.rows"], packed.arrays[f"head.{t}.biases"]
            wanted = (size, encoder.width * len(layers))
            if rows.shape != wanted or biases.shape != (size,) or biases.dtype != np.float32:
                raise ValueError(f"a head of {rows.shape} and {biases.shape} for {wanted}")
            if rows.dtype not in (np.float32, np.uint16):
                raise ValueError(f"rows of {rows.dtype}")
            heads.append(Head(rows, biases, "sgd", threads=self.threads))
        keeps, powers = tuple(map(int, values["keeps"])), tuple(map(float, values["powers"]))
        if len(keeps) != tree.n_levels - 1 or len(powers) != tree.n_levels or min(keeps, default=1) < 1:
            raise ValueError(f"{len(keeps)} shortlists and {len(powers)} powers for {tree.n_levels} levels")
        return _State(
            reader, int(values["max_tokens"]), Cascade(tree, heads, keeps, True, self.threads), powers
        )


def _one_each(values: tuple[Any, ...], n_levels: int, name: str) -> tuple[Any, ...]:
    if len(values) != n_levels:
        raise SettingError(f"{name} has {len(values)} values", remedy=f"give {n_levels}, one for each level")
    return values
