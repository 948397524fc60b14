"""The training loop: one encoder and a head at every level, learnt together.

Everything random follows from the seed and the step's number, and all that a step changes is in the
checkpoint: a run that was killed goes on to the same model, bit for bit.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from xmcascade.errors import XmcError
from xmcascade.neural.cascade import LevelLoss, Truth
from xmcascade.neural.extra import torch
from xmcascade.neural.heads import Floats, Head, Ints, Shortlist
from xmcascade.neural.optimizer import EncoderOptimizer
from xmcascade.neural.plan import Arithmetic, Memory, resident_bytes
from xmcascade.neural.reader import Reader
from xmcascade.neural.tokens import TokenStore, batches
from xmcascade.progress import patient, tracker
from xmcascade.settings import Settings
from xmcascade.store import Checkpoint, within

__all__ = ["BEST", "Learner", "Training", "TrainingSettings", "schedule"]

log = logging.getLogger("xmcascade")

ADAGRAD_RATE = 0.05
TRAIN, BEST = "training", "best"  # pieces of the checkpoint


@dataclass(frozen=True, kw_only=True)
class TrainingSettings(Settings):
    """How an encoder and heads are trained."""

    epochs: float | None = None
    """Passes over the documents; None: derived from how much text there is."""
    head_epochs: float = 2.0
    """Before: passes in which only the heads learn, from features of the encoder as it came."""
    short_tokens: int | None = None
    """Longer texts are cut here for most of training; 0: none; None: derived from how long they are."""
    short_part: float = 0.8
    """Share of the steps, at the beginning, in which they are."""
    batch: int = 32
    """Documents encoded together."""
    accumulate: int = 1
    """Batches that make a step: one of `batch * accumulate` documents."""
    rate: float = 1e-4
    """Of the encoder's AdamW."""
    token_rate: float = 1e-3
    """Of its token embeddings, of which a step touches only those that the batch has."""
    head_rate: float | None = None
    """Of the rows' optimizer; None: 10 times `rate`, or 0.05 for adagrad, whose steps grow ever smaller."""
    decay: float = 0.01
    """AdamW's weight decay; none on biases and norms."""
    warmup: float = 0.05
    """Share of the steps in which the rates rise."""
    anneal: float = 0.5
    """Share of the steps, at the end, in which they fall."""
    clip: float = 5.0
    """Longest gradient of the encoder; 0: any."""
    ema: float = 0.0
    """With a number near 1, the encoder that is kept is a moving average of the trained one."""
    evaluations: int = 4
    """Times that the model is tried on held-out documents, evenly spread; the best state is kept."""
    patience: int = 3
    """Evaluations without gain after which training stops."""
    arithmetic: Arithmetic | None = None
    """Of the encoder's passes; its weights, and the answers it gives, are float32. None: derived."""
    checkpoint_minutes: float = 10.0
    """How often the work so far is kept, when `fit` is given a checkpoint."""

    def check(self) -> None:
        """Refuse values out of range."""
        self.require(self.epochs is None or 0 <= self.epochs <= 1000, "epochs", "0 to 1000, or null")
        self.require(0 <= self.head_epochs <= 1000, "head_epochs", "0 to 1000")
        fine = self.short_tokens is None or self.short_tokens == 0 or 3 <= self.short_tokens <= 2**20
        self.require(fine, "short_tokens", "0, from 3 up, or null")
        self.require(0 <= self.short_part <= 1, "short_part", "0 to 1")
        self.require(1 <= self.batch <= 65536, "batch", "1 to 65536")
        self.require(1 <= self.accumulate <= 65536, "accumulate", "1 to 65536")
        self.require(0 <= self.rate <= 1, "rate", "0 to 1")
        self.require(0 <= self.token_rate <= 1, "token_rate", "0 to 1")
        self.require(self.head_rate is None or 0 <= self.head_rate <= 10, "head_rate", "0 to 10, or null")
        self.require(0 <= self.decay <= 10, "decay", "0 to 10")
        self.require(0 <= self.warmup <= 1, "warmup", "0 to 1")
        self.require(0 <= self.anneal <= 1, "anneal", "0 to 1")
        self.require(0 <= self.clip < math.inf, "clip", "from 0 up")
        self.require(0 <= self.ema < 1, "ema", "0 or more, below 1")
        self.require(1 <= self.evaluations <= 10_000, "evaluations", "1 to 10000")
        self.require(1 <= self.patience <= 10_000, "patience", "1 to 10000")
        self.require(0 <= self.checkpoint_minutes < math.inf, "checkpoint_minutes", "from 0 up")


def schedule(step: int, n_steps: int, warmup: float, anneal: float) -> float:
    """What part of the full rate a step has: a cosine up, level, a cosine down.

    >>> [round(schedule(step, 10, 0.2, 0.4), 2) for step in range(10)]
    [0.15, 0.85, 1.0, 1.0, 1.0, 1.0, 0.96, 0.69, 0.31, 0.04]
    """
    done, left = (step + 0.5) / n_steps, (n_steps - step - 0.5) / n_steps
    rate = 1.0
    if done < warmup:
        rate *= 0.5 - 0.5 * math.cos(math.pi * done / warmup)
    if left < anneal:
        rate *= 0.5 - 0.5 * math.cos(math.pi * left / anneal)
    return rate


@dataclass(eq=False)
class _Progress:
    """Where a run is."""

    step: int = 0
    best: float = -1.0
    best_step: int = -1
    worse: int = 0
    """Evaluations since the best one."""
    crowded: int = 0
    """Times that a document had more true clusters at a level than go on; all of them did."""
    history: list[dict[str, Any]] = field(default_factory=list)


class Learner(Protocol):
    """Heads that learn from what the reader says of documents."""

    heads: list[Head]

    def forward(
        self, xs: Sequence[Floats], truths: Sequence[Truth], docs: Ints, n_docs: int
    ) -> list[LevelLoss]:
        """Losses of a part of a batch of so many documents."""

    def backward(
        self, levels: Sequence[LevelLoss], rate: float, seed: int, hold: bool = False
    ) -> list[Floats]:
        """Update the heads; returns the loss's derivatives by the features."""

    def activations(self, n_tokens: int) -> int:
        """Numbers that a document of so many tokens needs at most beside the encoder's."""


@dataclass(eq=False, kw_only=True)
class Training:
    """One run of training."""

    reader: Reader
    cascade: Learner
    tokens: TokenStore
    short: TokenStore
    """The documents as they are read first: cut shorter, or the same."""
    relevance: list[Any]
    """For each level, documents x nodes (LabelTree.relevance)."""
    docs: Ints
    """Documents to learn from."""
    settings: TrainingSettings
    dropouts: tuple[float, ...]
    seed: int
    best: Checkpoint
    """Where the best state is kept."""
    kept: Checkpoint | None
    """Where the work is kept as it goes, if anywhere."""
    title: str

    def run(self, epochs: float, start: Callable[[], None]) -> list[dict[str, Any]]:
        """Train, and leave reader and cascade in the best state; returns what the evaluations said.

        `start` prepares the heads; a run that goes on does not need it.
        """
        s = self.settings
        self.at = _Progress()
        per_epoch = -(-len(self.docs) // s.batch)
        n_batches = max(1, round(epochs * per_epoch)) if epochs else 0
        self.n_steps = -(-n_batches // s.accumulate)
        self.optimizer = EncoderOptimizer(self.reader.encoder, s.decay)
        self.average = [p.detach().clone() for p in self._parameters()] if s.ema else []
        if not self._resume():
            start()
            self._keep()
        trials = {max(1, round(self.n_steps * (i + 1) / s.evaluations)) for i in range(s.evaluations)}
        saved = time.monotonic()
        own_random = torch().random.fork_rng()  # the caller's stays as it is
        hurry = nullcontext(bool) if self.kept is None else patient()
        with own_random, hurry as asked, tracker(self.title, n_batches * s.batch, "documents") as seen:
            seen.skip(self.at.step * s.accumulate * s.batch)
            for batch in self._batches(per_epoch):
                self._step(batch)
                seen.advance(sum(map(len, batch)), self._shown())
                if self.at.step in trials and self._tried():
                    break
                if asked() or time.monotonic() - saved >= 60 * s.checkpoint_minutes:
                    self._keep()
                    saved = time.monotonic()
                if asked():
                    raise KeyboardInterrupt
        if self.at.step == self.n_steps:
            self._keep()  # what follows training may be long too
        if self.at.best_step not in (-1, self.at.step):
            self._become_best()
        elif self.average:
            self._swap()
        return self.at.history

    @property
    def head_rate(self) -> float:
        """Of the rows' optimizer."""
        s = self.settings
        if s.head_rate is not None:
            return s.head_rate
        return ADAGRAD_RATE if self.cascade.heads[0].optimizer == "adagrad" else 10 * s.rate

    def _batches(self, per_epoch: int) -> Iterator[list[Ints]]:
        """The batches of each step still to do."""
        lengths = self.tokens.lengths[self.docs]
        s, together = self.settings, []
        first = self.at.step * s.accumulate
        epoch, start = divmod(first, per_epoch)
        left = self.n_steps - self.at.step
        while left:
            for batch in batches(lengths, s.batch, self.seed, epoch, start):
                together.append(self.docs[batch])
                if len(together) == s.accumulate:
                    yield together
                    together, left = [], left - 1
                    if not left:
                        return
            epoch, start = epoch + 1, 0

    def _step(self, parts: list[Ints]) -> None:
        s, step = self.settings, self.at.step
        rate = schedule(step, self.n_steps, s.warmup, s.anneal)
        tokens = self.short if step < s.short_part * self.n_steps else self.tokens
        self.reader.encoder.model.train()
        n_docs, hold, done = sum(map(len, parts)), len(parts) > 1, []
        seed = int(np.random.default_rng((self.seed, step)).integers(2**31 - 64))
        for i, docs in enumerate(parts):
            torch().manual_seed(seed + i)
            xs = self.reader.batch(tokens, docs)
            xs = [torch().nn.functional.dropout(x, p) for x, p in zip(xs, self.dropouts, strict=True)]
            truths = [Truth.of(level, docs) for level in self.relevance]
            levels = self.cascade.forward([x.detach().numpy(force=True) for x in xs], truths, docs, n_docs)
            self._check(levels)
            self.at.crowded += sum(level.n_crowded for level in levels)
            backs = self.cascade.backward(levels, self.head_rate * rate, seed, hold)
            self._backward(xs, backs)
            done.append(levels)
        if hold:
            self.cascade.backward(_joined(done), self.head_rate * rate, seed)
        self.optimizer.step(s.rate * rate, s.token_rate * rate, s.clip)
        if self.average:
            torch()._foreach_lerp_(self.average, [p.detach() for p in self._parameters()], 1 - s.ema)
        self.at.step += 1
        self.last = done[-1]

    def _backward(self, xs: list[Any], backs: list[Floats]) -> None:
        pairs = [
            (x, torch().from_numpy(b).to(x.device)) for x, b in zip(xs, backs, strict=True) if x.requires_grad
        ]
        if pairs:
            torch().autograd.backward([x for x, _ in pairs], [b for _, b in pairs])

    def _check(self, levels: list[LevelLoss]) -> None:
        for t, level in enumerate(levels):
            if not math.isfinite(level.loss):
                what = f"the loss of level {t} is {level.loss} at step {self.at.step:,} of {self.n_steps:,}"
                remedy = "lower training.rate or training.head_rate; nothing of this step was learnt"
                raise XmcError(what, remedy=remedy)

    def _parameters(self) -> list[Any]:
        return [p for p in self.reader.encoder.model.parameters() if p.requires_grad]

    def _shown(self) -> dict[str, Any]:
        """What is told beside progress: the loss of each level, and the last evaluation."""
        known = self.at.history[-1] if self.at.history else {}
        tried: dict[str, Any] = {name: known[name] for name in ("P@1", "recall") if name in known}
        return {"loss": [round(level.loss, 4) for level in self.last], **tried}

    def _tried(self) -> bool:
        """Say how it goes, `settings.evaluations` times; whether it is time to stop."""
        return False

    def memory(self) -> Memory:
        """What training will need at most, beside what the process has now."""
        s = self.settings
        trained = sum(p.numel() for p in self._parameters())
        longest = int(self.tokens.lengths[self.docs].max(initial=1))
        heads = self.cascade.heads
        return Memory(
            {
                "the process so far": resident_bytes(),
                "optimizers": 12 * trained
                + 4 * trained * bool(s.ema)
                + sum(a.nbytes for head in heads for a in head.state),
                "activations": s.batch * self.reader.activations(longest),
                "scores": 4 * s.batch * self.cascade.activations(longest),
            }
        )

    def _swap(self) -> None:
        """Exchange the encoder with its moving average."""
        for own, other in zip(self._parameters(), self.average, strict=bool(self.average)):
            held = own.detach().clone()
            own.data.copy_(other)
            other.copy_(held)

    # Keeping ----------------------------------------------------------------------------------------------

    def _learnt(self, whole: bool = False) -> dict[str, npt.NDArray[Any]]:
        arrays = {f"encoder.{i}": p.detach().cpu().numpy() for i, p in enumerate(self._parameters())}
        for t, head in enumerate(self.cascade.heads):
            arrays.update({f"head.{t}.{name}": array for name, array in head.to_arrays(whole).items()})
        return arrays

    def _keep(self) -> None:
        if self.kept is None:
            return
        arrays = self._learnt(whole=True)
        arrays.update({f"adamw.{name}": array for name, array in self.optimizer.to_arrays().items()})
        arrays.update({f"average.{i}": p.cpu().numpy() for i, p in enumerate(self.average)})
        self.kept.save(TRAIN, arrays, asdict(self.at))

    def _resume(self) -> bool:
        kept = None if self.kept is None else self.kept.load(TRAIN)
        if kept is None:
            return False
        arrays, values = kept
        if values["best_step"] not in (-1, self.n_steps) and self.best.load(BEST) is None:
            return False  # killed while a finished run's pieces were being deleted: begin anew
        self._take(arrays)
        for own, i in zip(self.average, range(len(self.average)), strict=True):
            own.copy_(torch().from_numpy(np.array(arrays[f"average.{i}"])))
        self.optimizer.take(within(arrays, "adamw."))
        self.at = _Progress(**values)
        log.info("%s: going on from step %s", self.title, f"{self.at.step:,}")
        return True

    def _take(self, arrays: dict[str, npt.NDArray[Any]]) -> None:
        for i, p in enumerate(self._parameters()):
            p.data.copy_(torch().from_numpy(np.array(arrays[f"encoder.{i}"])))
        for t, head in enumerate(self.cascade.heads):
            head.take(within(arrays, f"head.{t}."))

    def _become_best(self) -> None:
        kept = self.best.load(BEST)
        assert kept is not None
        log.info("%s: the best state was that of step %s", self.title, f"{self.at.best_step:,}")
        self._take(kept[0])


def _joined(parts: list[list[LevelLoss]]) -> list[LevelLoss]:
    """The levels of several batches as those of one."""
    joined = []
    for levels in zip(*parts, strict=True):
        short = Shortlist.join([level.short for level in levels])
        x, slopes = (np.concatenate([getattr(level, name) for level in levels]) for name in ("x", "slopes"))
        joined.append(LevelLoss(short, x, slopes, sum(level.loss for level in levels), 0, 0, 0))
    return joined
