"""Texts read with an encoder: settings, documents made ready for training, and what a fitted model keeps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from xmcascade.corpus import Corpus
from xmcascade.errors import DataError, SettingError
from xmcascade.features import Tfidf, TfidfSettings
from xmcascade.kernels.parallel import thread_count
from xmcascade.models.fitting import FitRun, ModelSettings, Packed
from xmcascade.neural import (
    NETWORKS,
    Encoder,
    Graph,
    Head,
    Network,
    Pooling,
    Reader,
    TokenStore,
    TorchHead,
    TrainingSettings,
    cutting,
    plan,
    torch_threads,
)
from xmcascade.neural.extra import torch
from xmcascade.neural.pretrained import tokenizer_of
from xmcascade.store import Strings, within

__all__ = [
    "TORCH", "WORDS", "Amount", "EncoderSettings", "Parts", "Prepared", "TextReader", "Token", "few",
    "sampled", "spans", "words_of",
]  # fmt: skip

WORDS = TfidfSettings(min_df=2)
SMALL_CORPUS = 1000  # documents
SAMPLED = 512  # documents that a plan looks at
BUDGET = "budget"  # a piece of the checkpoint
AROUND = 1.15  # time of training with its evaluations, by time of its steps
READ_ONLY = 2 / 3  # documents are also read twice without learning, each time at a third of the cost
LEAST_EPOCHS = 0.05
TORCH = "torch"  # what always runs an encoder
ENCODER, GRAPH = "encoder.", "runtime."  # how names of arrays begin
STORED = "encoder", "reads", "max_tokens"


@dataclass(frozen=True, kw_only=True)
class EncoderSettings(ModelSettings):
    """Settings of all models that train an encoder; what is None is derived, and said why."""

    effort: plan.Effort = "balanced"
    """How much is read in training, where `training.epochs` does not say: about 1/20, 1 or 3 parts."""
    encoder: str = "minilm"
    """"minilm" (embedded), a folder, or a name on the Hugging Face hub."""
    max_tokens: int | None = None
    """Longer texts are cut."""
    pooling: Pooling = "mean"
    """"cls": the summary token; "mean": all tokens."""
    freeze_layers: int = 0
    """Lowest encoder layers that stay as they are, the embeddings included."""
    encoder_dropout: float = 0.0
    features: TfidfSettings = WORDS
    """What trees are built from, and what linear rows read."""
    training: TrainingSettings = TrainingSettings()  # noqa: RUF009
    device: str = "cpu"
    """Where to train: "cpu", "cuda", "cuda:1", ...; answers come from the CPU."""

    def check(self) -> None:
        """Refuse values out of range."""
        super().check()
        fine = self.max_tokens is None or 3 <= self.max_tokens <= 2**20
        self.require(fine, "max_tokens", "from 3 up, or null")
        self.require(0 <= self.freeze_layers <= 1000, "freeze_layers", "0 to 1000")
        self.require(0 <= self.encoder_dropout < 1, "encoder_dropout", "0 or more, below 1")


def sampled(corpus: Corpus, seed: int) -> tuple[Corpus, float]:
    """A few documents, and what share of all they are.

    >>> sampled(Corpus.from_lists(["a", "b"], [["x"], ["y"]]), 0)[1]
    1.0
    """
    some = np.sort(np.random.default_rng(seed).permutation(corpus.n_docs)[:SAMPLED])
    return corpus.take(some), len(some) / corpus.n_docs


def _texts_of(corpus: Corpus) -> Strings:
    if corpus.texts is None:
        raise DataError("an encoder needs texts, the corpus has only features", remedy="give texts")
    return corpus.texts


def words_of(corpus: Corpus, features: TfidfSettings, run: FitRun) -> tuple[Tfidf, Any]:
    """tf-idf of a corpus: what makes it, and a row for each document."""
    texts, every = _texts_of(corpus), few(corpus) and features == WORDS
    tfidf = Tfidf(features.with_values({"min_df": 1}) if every else features, threads=run.threads)
    return tfidf, tfidf.fit_transform(texts)


def few(corpus: Corpus) -> bool:
    """Whether there are so few documents that every word counts, where the settings do not say otherwise."""
    return corpus.n_docs < SMALL_CORPUS


class Amount(NamedTuple):
    """How much there is to read."""

    n_tokens: int
    """In a pass of training."""
    n_short: int
    """In a pass over documents that are cut short."""
    n_docs: int

    def minutes_for(self, epochs: float, pace: float) -> float:
        """How long so many passes take, with what is done before and after, at these tokens a second.

        >>> round(Amount(600_000, 600_000, 20_000).minutes_for(3.0, 1000.0), 1)
        42.2
        """
        return AROUND * (epochs * self.n_tokens + READ_ONLY * self.n_short) / max(pace, 1e-9) / 60

    def epochs_in(self, minutes: float, pace: float) -> float:
        """The opposite.

        >>> Amount(600_000, 600_000, 20_000).epochs_in(42.2, 1000.0)
        3.0
        """
        n_tokens = 60 * minutes * pace / AROUND - READ_ONLY * self.n_short
        return round(max(n_tokens / max(self.n_tokens, 1), LEAST_EPOCHS), 2)


@dataclass(frozen=True, eq=False)
class Prepared:
    """An encoder, and a corpus as its tokens."""

    settings: EncoderSettings
    encoder: Encoder | Network
    tokenizer: Any
    max_tokens: int
    tokens: TokenStore
    short: TokenStore
    """The documents as they are read for most of training: long ones cut."""
    folder: str
    """For files that are needed until training ends."""
    arithmetic: plan.Arithmetic

    @classmethod
    def of(
        cls,
        corpus: Corpus,
        settings: EncoderSettings,
        run: FitRun,
        folder: str,
        network: Callable[[Encoder], Network] | None = None,
    ) -> Self:
        """Load the encoder (or put a network in its place), and tokenise."""
        texts = _texts_of(corpus)
        encoder: Encoder | Network = Encoder.load(settings.encoder)
        if network is not None:
            assert isinstance(encoder, Encoder)
            encoder = network(encoder)
        most = min(plan.MOST_TOKENS_A_DOCUMENT, encoder.max_tokens)
        most = min(run.settle("max_tokens", settings.max_tokens, most, "as in the paper"), encoder.max_tokens)
        tokenizer = cutting(encoder.tokenizer, most)
        tokens = TokenStore.of(texts, tokenizer, most, folder)
        short, given = tokens, settings.training.short_tokens
        if given is not None or not settings.freeze_layers:  # what frozen layers say is kept of whole ones
            fewer = run.settle("training.short_tokens", given, *plan.short_tokens(tokens.lengths))
            if 0 < fewer < int(tokens.lengths.max(initial=0)):
                part = Path(folder, "short")
                part.mkdir()
                short = TokenStore.of(texts, cutting(tokenizer, fewer), fewer, part)
        derived = plan.arithmetic(settings.device, 0 if network else encoder.width)
        arithmetic = run.settle("training.arithmetic", settings.training.arithmetic, *derived)
        return cls(settings, encoder, tokenizer, most, tokens, short, folder, arithmetic)

    def reader(self, reads: tuple[tuple[int, ...], ...]) -> Reader:
        """A reader of these layers, on its device; layers that nobody reads are cut off."""
        s, encoder = self.settings, self.encoder
        encoder.cut(reads)
        encoder.set_dropout(s.encoder_dropout)
        encoder.freeze(s.freeze_layers)
        try:
            encoder.model.to(s.device)
        except (AssertionError, RuntimeError) as error:  # how torch says that there is no such device
            what = f"device is {s.device!r}, which torch cannot use ({error!s:.100})"
            raise SettingError(what, remedy='use "cpu", or install torch for this device') from error
        reader = Reader(encoder, reads, s.pooling, arithmetic=self.arithmetic)
        if s.freeze_layers and min(map(min, reads)) >= s.freeze_layers:
            reader.store(self.tokens, self.folder)
        return reader

    def head(self, n_nodes: int, width: int, run: FitRun, **how: Any) -> Head:
        """A head of random rows, where the encoder is trained."""
        how = {"decay": self.settings.training.decay, "threads": run.threads, **how}
        if self.settings.device == "cpu":
            return Head.random(n_nodes, width, run.rng, **how)
        return TorchHead.random(n_nodes, width, run.rng, device=self.settings.device, **how)

    def amount(self, docs: npt.NDArray[np.int64], share: float = 1.0) -> Amount:
        """What there is to read of these documents; share: of all documents, what they are."""
        part = self.settings.training.short_part
        n_short, n_long = (float(store.lengths[docs].sum() / share) for store in (self.short, self.tokens))
        return Amount(round(part * n_short + (1 - part) * n_long), round(n_short), round(len(docs) / share))

    def epochs(self, docs: npt.NDArray[np.int64], run: FitRun, reader: Reader) -> tuple[float, float]:
        """Passes over the documents, and the share of them that is enough to start heads."""
        s, much = self.settings, self.amount(docs)
        chosen = plan.epochs(much.n_tokens, much.n_docs, s.effort)
        if run.minutes is not None and s.training.epochs is None:
            chosen = self._within(run.minutes, much, docs, run, reader)
        epochs = run.settle("epochs", s.training.epochs, *chosen)
        return epochs, plan.start_share(much.n_short, epochs, s.effort)

    def _within(
        self, minutes: float, much: Amount, docs: npt.NDArray[np.int64], run: FitRun, reader: Reader
    ) -> tuple[float, str]:
        """Passes that fit into these minutes, and why; a run that goes on keeps to what it began with."""
        kept = run.checkpoint and run.checkpoint.load(BUDGET)
        if kept:
            return kept[1]["epochs"], kept[1]["reason"]
        pace = reader.pace(self.short, docs, self.settings.training.batch)
        epochs = much.epochs_in(minutes, pace)
        reason = f"{minutes:g} minutes; training reads about {pace:,.0f} tokens a second"
        if run.checkpoint:
            run.checkpoint.save(BUDGET, {}, {"epochs": epochs, "reason": reason})
        return epochs, reason

    def forecast(self, share: float, n_weights: int, reader: Reader, run: FitRun) -> None:
        """Note how far and how long training would go, and the memory it would need, from a few documents.

        share: of all documents, what these are; n_weights: of all heads.
        """
        s, docs = self.settings, np.arange(len(self.tokens))
        much, pace = self.amount(docs, share), reader.pace(self.short, docs, self.settings.training.batch)
        chosen = plan.epochs(much.n_tokens, much.n_docs, s.effort)
        if run.minutes is not None:
            chosen = much.epochs_in(run.minutes, pace), f"{run.minutes:g} minutes"
        epochs = s.training.epochs or run.derive("epochs", *chosen)
        minutes, rate = much.minutes_for(epochs, pace), f"about {pace:,.0f} tokens a second in training"
        run.derive("minutes", round(minutes, 1 if minutes < 10 else None), f"{rate}; linear rows not counted")
        trained = sum(p.numel() for p in self.encoder.model.parameters() if p.requires_grad)
        longest = int(self.tokens.lengths.max(initial=1))
        needs = plan.Memory(
            {
                "the process so far": plan.resident_bytes(),
                "heads": 4 * n_weights,
                "optimizer": 12 * trained,
                "activations": s.training.batch * reader.activations(longest),
            }
        )
        run.derive("memory_gib", round(needs.total / 2**30, 2), str(needs))

    def finished(self, reader: Reader) -> TextReader:
        """What the fitted model keeps."""
        self.encoder.model.to("cpu")
        weights, tokenizer, config = self.encoder.state()
        values = {"encoder": config, "reads": reader.reads, "max_tokens": self.max_tokens}
        arrays = {ENCODER + name: array for name, array in weights.items()}
        stored = Packed(arrays, {"tokenizer": Strings.of([tokenizer])}, values)
        return TextReader(stored, self.tokenizer, reader.pooling, replace(reader, stored=None))


class Token(NamedTuple):
    """A token of a text, and the characters it stands for; none where the tokenizer has added it."""

    text: str
    start: int
    end: int


class Parts(NamedTuple):
    """Some rows multiplied with what a level reads of a text."""

    products: npt.NDArray[np.float32]
    """[E]"""
    tokens: npt.NDArray[np.float32]
    """[E, T]: what of it each token adds; or for a summary token's row, how much attention it pays each."""
    length: float
    """Of what the level reads."""


class TextReader:
    """An encoder, the layers that are read of it, and a tokenizer that cuts.

    torch runs the encoder, or onnxruntime runs a graph of it that the model carries: then torch is not
    loaded, and the encoder stays in its file.
    """

    def __init__(
        self, stored: Packed, tokenizer: Any, pooling: Pooling, reader: Reader | None = None
    ) -> None:
        """Of the encoder as a model folder holds it, and as a reader, where there is one."""
        self.stored, self.tokenizer, self.pooling = stored, tokenizer, pooling
        self.max_tokens: int = tokenizer.truncation["max_length"]
        self.graphs: dict[str, npt.NDArray[np.uint8]] = {}
        """By runtime."""
        self.fastest = [TORCH]
        """All that can run the encoder, the fastest first as it was measured."""
        self.runtime = TORCH
        """What runs it."""
        self._reader = reader
        self._graph: Graph | None = None
        self._widths: list[int] | None = None

    def read(self, texts: Strings, threads: int | None) -> list[npt.NDArray[np.float32]]:
        """Features of texts, for each level."""
        tokens = TokenStore.of(texts, self.tokenizer, self.max_tokens)
        if self._graph is not None:
            return self._graph.read(tokens, thread_count(threads))
        with torch_threads(thread_count(threads)):
            return self.reader.encode(tokens)

    def use(self, runtime: str, threads: int | None = None) -> None:
        """Let this one run the encoder; raises when its parts do not fit."""
        if runtime == TORCH:
            self._graph, _ = None, self.reader
        elif runtime != self.runtime:
            self._graph = Graph(self.graphs[runtime], self.widths, thread_count(threads))
        self.runtime = runtime

    @property
    def reader(self) -> Reader:
        """The encoder for torch, restored when it is first needed; raises when its parts do not fit."""
        if self._reader is None:
            values, weights = self.stored.values, within(self.stored.arrays, ENCODER)
            kind = NETWORKS.get(self.family, Encoder)
            encoder = kind.restore(weights, self.stored.strings["tokenizer"][0], values["encoder"])
            reads = tuple(map(tuple, values["reads"]))
            if not all(0 <= k <= encoder.n_layers for layers in reads for k in layers):
                raise ValueError(f"levels read the layers {reads} of {encoder.n_layers}")
            if self.max_tokens > encoder.max_tokens:
                raise ValueError(f"{self.max_tokens:,} tokens, and positions for {encoder.max_tokens:,}")
            reader = Reader(encoder, reads, self.pooling)
            if self._widths not in (None, reader.widths):
                raise ValueError(f"features of {reader.widths}, not {self._widths}")
            self._reader = reader
        return self._reader

    @property
    def family(self) -> str:
        """Of the encoder, or the kind of network in its place."""
        return str(dict(self.stored.values["encoder"]).get("model_type", ""))

    @property
    def widths(self) -> list[int]:
        """Features of each level."""
        return self.reader.widths if self._widths is None else self._widths

    def parts(
        self, text: str, rows: Sequence[npt.NDArray[np.float32]], threads: int | None
    ) -> tuple[tuple[Token, ...], list[Parts]]:
        """The tokens of a text, and what each has to do with some rows [E, width] of every level.

        With mean pooling a product is exactly the sum of what the tokens add.
        """
        tokens = TokenStore.of([text], self.tokenizer, self.max_tokens)
        with torch_threads(thread_count(threads)):
            if isinstance(self.reader.encoder, Network):
                found = [self._gradients(tokens, own) for own in rows]
            else:
                ((_, features, attention),) = self.reader.look(tokens)
                found = []
                for own, layers, x in zip(rows, self.reader.reads, features, strict=True):
                    paid = [attention[k - 1][0, :, self.reader.summary] for k in layers if k and attention]
                    found.append(self._shares(own, x[0].numpy(), paid))
        return spans(self.tokenizer, text), found

    def _shares(self, rows: npt.NDArray[np.float32], x: npt.NDArray[np.float32], paid: list[Any]) -> Parts:
        if self.reader.pooling == "mean":
            own = x / np.float32(max(len(x), 1))
            tokens, pooled = rows @ own.T, own.sum(axis=0)
        else:
            heads = np.concatenate([layer.numpy() for layer in paid] or [np.zeros((1, len(x)), np.float32)])
            tokens, pooled = np.tile(heads.mean(axis=0), (len(rows), 1)), x[self.reader.summary]
        return Parts(rows @ pooled, tokens, float(np.linalg.norm(pooled)))

    def _gradients(self, tokens: TokenStore, rows: npt.NDArray[np.float32]) -> Parts:
        network = self.reader.encoder
        assert isinstance(network, Network)
        x = self.reader.encode(tokens)[0][0]
        if not len(rows):
            return Parts(rows @ x, np.zeros((0, len(tokens.ids)), np.float32), float(np.linalg.norm(x)))
        ids, real = self.reader.tensors(tokens, np.zeros(1, np.int64))
        slopes = network.contributions(ids, real, torch().from_numpy(rows)).numpy()[:, : len(tokens.ids)]
        return Parts(rows @ x, slopes, float(np.linalg.norm(x)))

    def pack(self) -> Packed:
        """To store."""
        arrays, values = dict(self.stored.arrays), dict(self.stored.values)
        if self.graphs:
            arrays |= {GRAPH + name: graph for name, graph in self.graphs.items()}
            values["runtimes"] = {"fastest": self.fastest, "widths": self.widths}
        return Packed(arrays, dict(self.stored.strings), values)

    @classmethod
    def unpack(cls, packed: Packed, pooling: Pooling) -> Self:
        """The opposite; raises when the parts do not fit."""
        weights = {name: array for name, array in packed.arrays.items() if name.startswith(ENCODER)}
        texts, values = packed.strings["tokenizer"], packed.values
        stored = Packed(weights, {"tokenizer": texts}, {name: values[name] for name in STORED})
        text = cls(stored, cutting(tokenizer_of(texts[0]), int(values["max_tokens"])), pooling)
        if "runtimes" not in values:
            _ = text.reader
            return text
        graphs, noted = within(packed.arrays, GRAPH), values["runtimes"]
        text.graphs = {name: graphs[name] for name in noted["fastest"] if name != TORCH}
        text.fastest, text._widths = list(noted["fastest"]), [int(width) for width in noted["widths"]]
        if sorted(text.fastest) != sorted({TORCH, *graphs}) or len(text._widths) != len(values["reads"]):
            raise ValueError(f"{text.fastest} run an encoder of {text._widths}")
        return text


def spans(tokenizer: Any, text: str) -> tuple[Token, ...]:
    """The tokens of a text, and where they stand in it.

    >>> from tokenizers import Tokenizer, models, pre_tokenizers
    >>> words = Tokenizer(models.WordLevel({"?": 0, "cat": 1}, unk_token="?"))
    >>> words.pre_tokenizer = pre_tokenizers.Whitespace()
    >>> [tuple(token) for token in spans(words, "a cat")]
    [('?', 0, 1), ('cat', 2, 5)]
    """
    found = tokenizer.encode(text)
    return tuple(Token(own, *at) for own, at in zip(found.tokens, found.offsets, strict=True))
