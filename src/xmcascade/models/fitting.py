"""What a fit is given and what it leaves: settings of all models, a run, and a learnt state."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from xmcascade.corpus import Corpus
from xmcascade.errors import ModelFolderError, XmcError
from xmcascade.settings import Settings
from xmcascade.store import Checkpoint, Derived, Manifest, Strings

__all__ = ["FitRun", "Fitted", "ModelSettings", "Packed", "parts_of"]

log = logging.getLogger("xmcascade")


@dataclass(frozen=True, kw_only=True)
class ModelSettings(Settings):
    """What all models can be told."""

    seed: int = 0
    label_documents: bool = False
    """Whether the labels' own texts are documents to learn from too."""

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
    derived: dict[str, Derived] = field(default_factory=dict)
    n_extra: int = 0
    """The corpus's last documents, which are labels' texts: to learn from, not to choose on."""

    def settle(self, name: str, given: Any, value: Any, reason: str) -> Any:
        """What a setting says, or else the value the library chose."""
        return self.derive(name, value, reason) if given is None else given

    def derive(self, name: str, value: Any, reason: str) -> Any:
        """Note a value the library chose; returns it."""
        self.derived[name] = {"value": value, "reason": reason}
        log.info("%s = %s (%s)", name, value, reason)
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

    @classmethod
    def of(cls, corpus: Corpus, state: Any, run: FitRun) -> Self:
        """What was learnt from a corpus."""
        n_features = None if corpus.texts is not None else corpus.features.shape[1]
        names = corpus.label_names, corpus.label_ids, corpus.label_counts()
        return cls(state, *names, corpus.n_docs, n_features, run.derived)

    @classmethod
    def restored(cls, manifest: Manifest, packed: Packed, unpack: Callable[[Packed, int], Any]) -> Self:
        """What a folder says was learnt; raises when its parts do not fit."""
        names, counts = packed.strings["label_names"], packed.arrays["label_counts"]
        ids = {name: i for i, name in enumerate(names)}
        if not len(names) == len(ids) == len(counts) == manifest.n_labels:
            what = f"{len(ids):,} labels, {len(counts):,} counts, {manifest.n_labels:,} in the manifest"
            raise ValueError(what)
        state, values = unpack(packed, manifest.n_labels), packed.values
        learnt = state, names, ids, counts, int(values["n_docs"]), values["n_features"]
        return cls(*learnt, manifest.derived)

    def grown(self, new: Corpus, state: Any) -> Self:
        """With the labels of these documents after its own."""
        counts = np.concatenate([self.label_counts, new.label_counts()])
        return self._named(Strings.of([*self.label_names, *new.label_names]), counts, state)

    def pruned(self, kept: npt.NDArray[np.int32], state: Any) -> Self:
        """With only these labels."""
        return self._named(self.label_names.take(kept), self.label_counts[kept], state)

    def _named(self, names: Strings, counts: npt.NDArray[np.int64], state: Any) -> Self:
        ids = {name: i for i, name in enumerate(names)}
        return replace(self, state=state, label_names=names, label_ids=ids, label_counts=counts)
