"""Texts read with an encoder: settings, documents made ready for training, and what a fitted model keeps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

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
from xmcascade.neural.pretrained import tokenizer_of
from xmcascade.store import Strings, within

__all__ = ["TORCH", "EncoderSettings", "Prepared", "TextReader", "words_of"]

SMALL_CORPUS = 1000  # documents; below, every word counts
TORCH = "torch"  # what always runs an encoder
ENCODER, GRAPH = "encoder.", "runtime."  # how names of arrays begin
STORED = "encoder", "reads", "max_tokens"


@dataclass(frozen=True, kw_only=True)
class EncoderSettings(ModelSettings):
    """Settings of all models that train an encoder; what is None is derived, and said why."""

    encoder: str = "minilm"
    """"minilm" (embedded), a folder, or a name on the Hugging Face hub."""
    max_tokens: int | None = None
    """Longer texts are cut."""
    pooling: Pooling = "mean"
    """"cls": the summary token; "mean": all tokens."""
    freeze_layers: int = 0
    """Lowest encoder layers that stay as they are, the embeddings included."""
    encoder_dropout: float = 0.0
    features: TfidfSettings = TfidfSettings(min_df=2)  # noqa: RUF009 - it is frozen
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


def _texts_of(corpus: Corpus) -> Strings:
    if corpus.texts is None:
        raise DataError("an encoder needs texts, the corpus has only features", remedy="give texts")
    return corpus.texts


def words_of(corpus: Corpus, features: TfidfSettings, run: FitRun) -> tuple[Tfidf, Any]:
    """tf-idf of a corpus: what makes it, and a row for each document."""
    texts, few = _texts_of(corpus), corpus.n_docs < SMALL_CORPUS
    tfidf = Tfidf(features.with_values({"min_df": 1}) if few else features, threads=run.threads)
    return tfidf, tfidf.fit_transform(texts)


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
        return cls(settings, encoder, tokenizer, most, tokens, short, folder)

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
        reader = Reader(encoder, reads, s.pooling)
        if s.freeze_layers and min(map(min, reads)) >= s.freeze_layers:
            reader.store(self.tokens, self.folder)
        return reader

    def head(self, n_nodes: int, width: int, run: FitRun, **how: Any) -> Head:
        """A head of random rows, where the encoder is trained."""
        how = {"decay": self.settings.training.decay, "threads": run.threads, **how}
        if self.settings.device == "cpu":
            return Head.random(n_nodes, width, run.rng, **how)
        return TorchHead.random(n_nodes, width, run.rng, device=self.settings.device, **how)

    def epochs(self, docs: npt.NDArray[np.int64], run: FitRun) -> tuple[float, float]:
        """Passes over the documents, and the share of them that is enough to start heads."""
        part = self.settings.training.short_part
        n_short, n_long = (int(tokens.lengths[docs].sum()) for tokens in (self.short, self.tokens))
        n_tokens = round(part * n_short + (1 - part) * n_long)
        given = self.settings.training.epochs
        epochs = run.settle("epochs", given, *plan.epochs(n_tokens, len(docs)))
        return epochs, plan.start_share(n_short, epochs)

    def finished(self, reader: Reader) -> TextReader:
        """What the fitted model keeps."""
        self.encoder.model.to("cpu")
        weights, tokenizer, config = self.encoder.state()
        values = {"encoder": config, "reads": reader.reads, "max_tokens": self.max_tokens}
        arrays = {ENCODER + name: array for name, array in weights.items()}
        stored = Packed(arrays, {"tokenizer": Strings.of([tokenizer])}, values)
        return TextReader(stored, self.tokenizer, reader.pooling, replace(reader, stored=None))


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
