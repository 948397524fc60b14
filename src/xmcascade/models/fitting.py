"""What a fit is given and what it leaves: settings of all models, a run, and a learnt state."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from xmcascade.corpus import Corpus
from xmcascade.errors import ModelFolderError, XmcError
from xmcascade.progress import tell
from xmcascade.settings import Settings
from xmcascade.store import Checkpoint, Derived, Manifest, Strings

if TYPE_CHECKING:
    from xmcascade.models.calibration import Calibration

__all__ = ["FitRun", "Fitted", "ModelSettings", "Packed", "parts_of"]

log = logging.getLogger("xmcascade")


@dataclass(frozen=True, kw_only=True)
class ModelSettings(Settings):
    """What all models can be told."""

    seed: int = 0
    label_documents: bool = False
    """Whether the labels' own texts are documents to learn from too."""
    calibrate: bool = True
    """Whether probabilities are calibrated, on a few documents that are held out."""

    def check(self) -> None:
        """Refuse values out of range."""
        self.require(0 <= self.seed < 2**63, "seed", "0 to 2^63 - 1")


@dataclass
class FitRun:
    """What a `_fit` needs beside the corpus: randomness, threads, a place to say what it decided and why."""

    rng: np.random.Generator
    threads: int
    checkpoint: Checkpoint | None = None
    """Where long work is kept as it goes."""
    minutes: float | None = None
    """How long an encoder may be trained, where the settings do not say how far."""
    derived: dict[str, Derived] = field(default_factory=dict)
    n_extra: int = 0
    """The corpus's last documents, which are labels' texts: to learn from, not to choose on."""
    aloud: bool = True
    """Whether what is chosen is logged."""
    held: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    """Documents to choose on and to calibrate on, not to learn from."""

    def docs(self, corpus: Corpus) -> npt.NDArray[np.int64]:
        """Documents to learn from."""
        return np.setdiff1d(np.arange(corpus.n_docs), self.held)

    def taught(self, corpus: Corpus) -> Corpus:
        """With only these."""
        return corpus.take(self.docs(corpus)) if len(self.held) else corpus

    def settle(self, name: str, given: Any, value: Any, reason: str) -> Any:
        """What a setting says, or else the value the library chose."""
        return self.derive(name, value, reason) if given is None else given

    def derive(self, name: str, value: Any, reason: str) -> Any:
        """Note a value the library chose; returns it."""
        self.derived[name] = {"value": value, "reason": reason}
        if not self.aloud:
            return value
        log.info("%s = %s (%s)", name, value, reason)
        tell("derived", name=name, value=value, reason=reason)
        return value


class Packed(NamedTuple):
    """A learnt state as a model folder holds it."""

    arrays: dict[str, npt.NDArray[Any]]
    strings: dict[str, Strings]
    values: dict[str, Any]


@contextmanager
def parts_of(folder: str | Path) -> Iterator[None]:
    """Meanwhile the parts of a model folder are put together; what does not fit is said as one error.

    >>> with parts_of("my-model"):
    ...     {}["rows"]
    Traceback (most recent call last):
    ...
    xmcascade.errors.ModelFolderError: my-model: the parts of the model do not fit together \
(KeyError('rows')). Remedy: save the model again
    """
    try:
        yield
    except (KeyError, ValueError, TypeError, IndexError, OverflowError, XmcError) as error:
        what = f"the parts of the model do not fit together ({error!r:.200})"
        raise ModelFolderError(what, where=str(folder), remedy="save the model again") from error


@dataclass(frozen=True)
class Fitted:
    """All that fit leaves: the hook's state and what the contract itself needs."""

    state: Any
    label_names: Strings
    label_ids: dict[str, int]
    label_counts: npt.NDArray[np.int64]
    """Training documents of each label."""
    n_docs: int
    n_features: int | None
    """Columns of the features the model was trained on, when these came in place of texts."""
    derived: dict[str, Derived]
    calibration: Calibration | None = None
    canary: dict[str, Any] | None = None
    """What it says of some text (models/canary.py), from when it was first saved."""

    @classmethod
    def of(cls, corpus: Corpus, state: Any, calibration: Calibration | None, run: FitRun) -> Self:
        """What was learnt from a corpus."""
        n_features = None if corpus.texts is not None else corpus.features.shape[1]
        names = corpus.label_names, corpus.label_ids, corpus.label_counts()
        return cls(state, *names, corpus.n_docs, n_features, run.derived, calibration)

    @classmethod
    def restored(
        cls,
        unpack: Callable[[Packed, int], Any],
        manifest: Manifest,
        arrays: dict[str, npt.NDArray[Any]],
        strings: dict[str, Strings],
    ) -> Self:
        """From the parts of a model folder; raises when they do not fit one another."""
        from xmcascade.models.calibration import Calibration

        names, counts, values = strings["label_names"], arrays["label_counts"], manifest.values
        ids = {name: i for i, name in enumerate(names)}
        if not len(names) == len(ids) == len(counts) == manifest.n_labels:
            said = f"{manifest.n_labels:,} in the manifest"
            raise ValueError(f"{len(ids):,} labels, {len(counts):,} counts, {said}")
        state = unpack(Packed(arrays, strings, values), manifest.n_labels)
        facts = int(values["n_docs"]), values["n_features"], manifest.derived
        calibration = Calibration.from_arrays(arrays)
        return cls(state, names, ids, counts, *facts, calibration, values.get("canary"))

    def facts(self) -> dict[str, int | None]:
        """What is stored beside the state: numbers."""
        return {"n_docs": self.n_docs, "n_features": self.n_features}

    def to_arrays(self) -> dict[str, npt.NDArray[Any]]:
        """What is stored beside the state: arrays."""
        own = {} if self.calibration is None else self.calibration.to_arrays()
        return {"label_counts": self.label_counts, **own}

    def grown(self, new: Corpus, state: Any) -> Self:
        """With the labels of these documents after its own."""
        counts = np.concatenate([self.label_counts, new.label_counts()])
        return self._named(Strings.of([*self.label_names, *new.label_names]), counts, state)

    def pruned(self, kept: npt.NDArray[np.int32], state: Any) -> Self:
        """With only these labels."""
        return self._named(self.label_names.take(kept), self.label_counts[kept], state)

    def _named(self, names: Strings, counts: npt.NDArray[np.int64], state: Any) -> Self:
        ids = {name: i for i, name in enumerate(names)}
        own: dict[str, Any] = {"label_names": names, "label_ids": ids, "label_counts": counts, "canary": None}
        return replace(self, state=state, **own)
