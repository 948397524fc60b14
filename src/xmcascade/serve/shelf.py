"""The models that a server answers with: one folder, or a folder of several; new ones take the place of old.

A model folder is published in one step, so a changed folder is a whole new model. It is loaded beside the old
one, has to give the answer that it gave when it was saved, and then takes its place; requests that the old
one has begun are answered by it. One that fails is reported, and the old one goes on.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import numpy as np

from xmcascade.errors import ModelFolderError, XmcError
from xmcascade.models import Model, Prediction, load
from xmcascade.models.canary import agree
from xmcascade.models.runtimes import readers_of
from xmcascade.models.views import Inside, look_inside
from xmcascade.report.explain import names_of
from xmcascade.report.names import TreeNames
from xmcascade.store.manifest import MANIFEST

__all__ = ["Shelf", "Shelved", "UnknownModel"]

log = logging.getLogger("xmcascade.serve")

LOOK_SECONDS = 1.0  # between looks at the folders
MISSED_LOOKS = 3  # until a model whose folder is gone is dropped
CHARACTERS_A_TOKEN = 4  # about
HITS = 2000  # of each kind in a search, of which the best are told
LONGEST_PAUSE = 300.0  # seconds between tries to load what could not be
TRIALS = 4  # batches that a model answers before it takes its place
STEP, STEPS = 0.8, 14  # by which their texts get shorter, to about a twentieth, and then begin again
MOST_TRIED = 1 << 16  # tokens in such a batch
NAME = re.compile(r"[\w][\w.-]{0,99}")


class UnknownModel(XmcError):
    """A request names a model that is not here."""


@dataclass(frozen=True, eq=False)
class Shelved:
    """A model that is ready to answer."""

    name: str
    model: Model[Any, Any]
    identity: tuple[int, int, int]
    loaded: float
    """On the clock of time.time."""

    @classmethod
    def of(cls, name: str, folder: Path, threads: int | None, runtime: str | None) -> Shelved:
        """Load it, and see that it answers as it did when it was saved."""
        identity = identity_of(folder)
        model: Model[Any, Any] = load(folder, threads=threads, runtime=runtime)  # type: ignore[arg-type]
        if identity is None or identity_of(folder) != identity:
            return cls.of(name, folder, threads, runtime)  # it was replaced meanwhile
        canary = model._fitted().canary
        if model._fitted().n_features is not None:
            what = "the model reads features in place of texts"
            raise ModelFolderError(what, where=str(folder), remedy="serve a model that was trained on texts")
        if canary is None:
            log.warning("%s keeps no answer to compare with: it was saved by an older version", folder)
            model.rank([""], 1)
        else:
            agree(model, canary, str(folder))
        own = cls(name, model, identity, time.time())
        if own.names is not None:
            own.names.of(0, 0)  # what names need is made now, not while somebody waits
        return own

    def trials(self, tokens: int) -> Iterator[list[str]]:
        """Batches of texts of all lengths, of so many tokens each, about.

        A model that has answered them has the memory that it will need.
        """
        tokens, canary = min(tokens, MOST_TRIED), self.model._fitted().canary
        text = (canary["text"] if canary else "") or "text"
        longest = (text + " ") * (1 + CHARACTERS_A_TOKEN * min(tokens, self._most_tokens) // len(text))
        for trial in range(TRIALS):
            lengths = [int(len(longest) * STEP**n / (1 + trial)) for n in range(STEPS)]
            texts, room, turn = list[str](), tokens, cycle(lengths)
            while room > 0:
                texts.append(longest[: next(turn)])
                room -= self.sizes(texts[-1:])[0]
            yield texts

    def sizes(self, texts: list[str]) -> list[int]:
        """About how many tokens of each text are read."""
        most = self._most_tokens
        return [min(most, 2 + len(text) // CHARACTERS_A_TOKEN) for text in texts]

    @cached_property
    def _most_tokens(self) -> int:
        return max((reader.max_tokens for reader in readers_of(self.model)), default=1 << 30)

    def predict(
        self, texts: list[str], k: int | None, threshold: Any, allowed: tuple[str, ...] | None
    ) -> list[list[Prediction]]:
        """As Model.predict."""
        return self.model.predict(texts, k, threshold=threshold, allowed_labels=allowed)

    @cached_property
    def inside(self) -> Inside:
        """What of it people can look into."""
        return look_inside(self.model)

    @property
    def names(self) -> TreeNames | None:
        """The nodes of its first tree, named; None where it has no tree."""
        view = next((view for view in self.inside.views if view.tree is not None), None)
        return None if view is None else names_of(self.inside, view)

    def search(self, query: str, most: int) -> list[int]:
        """Labels whose names contain this, in any case: whole names first, then beginnings, then others."""
        wanted = _folded(query)
        if not wanted:
            return list(map(int, np.argsort(-self.inside.label_counts, kind="stable")[:most]))
        (lines, starts), part = self._lines, wanted.encode("utf-8", "replace")
        found: dict[int, int] = {}
        for kind, pattern in enumerate((b"\n" + part + b"\n", b"\n" + part, part)):
            for hit in islice(re.finditer(re.escape(pattern), lines), HITS):
                label = int(np.searchsorted(starts, hit.end() - 1 if kind else hit.start() + 1, "right")) - 1
                found.setdefault(label, kind)
            if len(found) >= most:
                break
        counts = self.inside.label_counts
        return sorted(found, key=lambda label: (found[label], -int(counts[label]), label))[:most]

    @cached_property
    def _lines(self) -> tuple[bytes, Any]:
        """All names folded, a line each, after an empty one; and where each begins."""
        names = [_folded(name).encode() for name in self.inside.label_names]
        starts = np.concatenate([[1], 1 + np.cumsum([len(name) + 1 for name in names])])
        return b"\n" + b"\n".join(names) + b"\n", starts


@dataclass(frozen=True)
class _Refused:
    """A model that could not be loaded: tried again after a pause, when it may be whole or there is room."""

    identity: tuple[int, int, int]
    pause: float
    since: float = field(default_factory=time.monotonic)

    def holds(self, identity: tuple[int, int, int]) -> bool:
        return identity == self.identity and time.monotonic() < self.since + self.pause


class Shelf:
    """All models of a server, by name; the first one answers where none is named."""

    def __init__(
        self,
        path: str | Path,
        threads: int | None = None,
        runtime: str | None = None,
        changed: Callable[[str, bool], None] = lambda name, fine: None,
    ) -> None:
        """changed: is called with a model's name after each try to load it, and whether that went well."""
        self.path, self.how, self.changed = Path(path), (threads, runtime), changed
        self.tried: Callable[[Shelved], None] = lambda own: None
        """Is called with a model before it takes its place."""
        self._models: dict[str, Shelved] = {}
        self._missed: dict[str, int] = {}
        self._refused: dict[str, _Refused] = {}
        self._several = False
        self._stop = threading.Event()

    @property
    def names(self) -> list[str]:
        """Of all models, in order."""
        return list(self._models)

    def get(self, name: str | None = None) -> Shelved:
        """The model of this name, or the first one."""
        models = self._models
        if name is None and models:
            return next(iter(models.values()))
        if name not in models:
            what = "no model is loaded" if name is None else f"there is no model {name!r:.120}"
            known = ", ".join(list(models)[:20])
            raise UnknownModel(what, remedy=f"the models are: {known}" if known else "wait until it is ready")
        return models[name]

    def folders(self) -> dict[str, Path]:
        """Where the models are, by name."""
        if (self.path / MANIFEST).exists() or not self.path.is_dir():
            return {self.path.resolve().name: self.path}
        inner = sorted(path for path in self.path.iterdir() if (path / MANIFEST).exists())
        return {path.name: path for path in inner if NAME.fullmatch(path.name)}

    def load(self) -> None:
        """Load all; raises when one cannot be."""
        folders = self.folders()
        if not folders:
            remedy = "give a model folder, or a folder of them"
            raise ModelFolderError("there is no model in this folder", where=str(self.path), remedy=remedy)
        self._several = not (self.path / MANIFEST).exists()
        for name, folder in folders.items():
            self._put(name, folder)
            self.changed(name, True)

    def look(self) -> None:
        """Load what is new, drop what is gone."""
        try:
            if self._several and not self.path.is_dir():
                return  # all of it is away for the moment
            folders = self.folders()
        except OSError as error:
            log.error("%s cannot be read (%s)", self.path, error)
            return
        for name, folder in folders.items():
            now, own, refused = identity_of(folder), self._models.get(name), self._refused.get(name)
            self._missed.pop(name, None)
            if now is None or (own and own.identity == now) or (refused and refused.holds(now)):
                continue
            try:
                self._put(name, folder)
                self._refused.pop(name, None)
                log.info("model %s: a new one answers now", name)
            except Exception as error:  # the old one goes on
                again = refused.pause * 2 if refused and refused.identity == now else LOOK_SECONDS
                self._refused[name] = _Refused(now, min(again, LONGEST_PAUSE))
                log.error("model %s: the new one is not used (%s)", name, error)
            self.changed(name, name not in self._refused)
        for name in self._models.keys() - folders.keys():
            self._missed[name] = self._missed.get(name, 0) + 1
            if self._missed[name] >= MISSED_LOOKS and len(self._models) > 1:
                self._models = {key: own for key, own in self._models.items() if key != name}
                log.warning("model %s: its folder is gone, and so is the model", name)

    def watch(self) -> None:
        """Look again and again, in a thread, until `close`."""

        def again() -> None:
            while not self._stop.wait(LOOK_SECONDS):
                self.look()

        threading.Thread(target=again, name="xmcascade-shelf", daemon=True).start()

    def close(self) -> None:
        """Look no more; what is being loaded is not waited for."""
        self._stop.set()

    def _put(self, name: str, folder: Path) -> None:
        own = Shelved.of(name, folder, *self.how)
        self.tried(own)
        # A new dictionary: who is reading the old one is not disturbed.
        self._models = dict(sorted({**self._models, name: own}.items()))


def identity_of(folder: Path) -> tuple[int, int, int] | None:
    """What changes when a folder is published anew; None where there is none."""
    try:
        found = (folder / MANIFEST).stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_mtime_ns


def _folded(name: str) -> str:
    return " ".join(name.casefold().split())
