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
from xmcascade.store import Strings, within

__all__ = ["EncoderSettings", "Parts", "Prepared", "TextReader", "Token", "spans", "words_of"]

SMALL_CORPUS = 1000  # documents; below, every word counts


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
        return TextReader(replace(reader, stored=None), self.tokenizer, self.max_tokens)


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


@dataclass(frozen=True, eq=False)
class TextReader:
    """An encoder, the layers that are read of it, and a tokenizer that cuts."""

    reader: Reader
    tokenizer: Any
    max_tokens: int

    def read(self, texts: Strings, threads: int | None) -> list[npt.NDArray[np.float32]]:
        """Features of texts, for each level."""
        tokens = TokenStore.of(texts, self.tokenizer, self.max_tokens)
        with torch_threads(thread_count(threads)):
            return self.reader.encode(tokens)

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
        weights, tokenizer, config = self.reader.encoder.state()
        values = {"encoder": config, "reads": self.reader.reads, "max_tokens": self.max_tokens}
        arrays = {f"encoder.{name}": array for name, array in weights.items()}
        return Packed(arrays, {"tokenizer": Strings.of([tokenizer])}, values)

    @classmethod
    def unpack(cls, packed: Packed, pooling: Pooling) -> Self:
        """The opposite; raises when the parts do not fit."""
        values, weights = packed.values, within(packed.arrays, "encoder.")
        kind = NETWORKS.get(dict(values["encoder"]).get("model_type", ""), Encoder)
        encoder = kind.restore(weights, packed.strings["tokenizer"][0], values["encoder"])
        reader = Reader(encoder, tuple(map(tuple, values["reads"])), pooling)
        if not all(0 <= k <= encoder.n_layers for layers in reader.reads for k in layers):
            raise ValueError(f"levels read the layers {reader.reads} of {encoder.n_layers}")
        max_tokens = min(int(values["max_tokens"]), encoder.max_tokens)
        return cls(reader, cutting(encoder.tokenizer, max_tokens), max_tokens)


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
