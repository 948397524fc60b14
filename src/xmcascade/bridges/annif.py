"""A backend for Annif, named xmcascade: any method of this package trained and asked through Annif.

Annif 1.4 finds backends in a table of its own; importing this module adds a line to it. For Annif's command
line and server that is done by its own setting of the configuration to load, which is a name in this module:

    ANNIF_CONFIG=xmcascade.bridges.annif.Config annif train my-project corpus.tsv

The project's configuration takes `method`, `settings` (blanks between them), `limit`, and `checkpoint`, a
folder where long training is kept as it goes. An analyzer is not needed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from xmcascade.bridges.subjects import corpus_of, settings_of, subject_ids, suggestions
from xmcascade.errors import MissingExtraError, SettingError, XmcError
from xmcascade.models import MODELS, Model, load

try:
    import annif.backend
    from annif import default_config
    from annif.backend.backend import AnnifBackend
    from annif.exception import (
        ConfigurationException,
        NotInitializedException,
        NotSupportedException,
        OperationFailedException,
    )
    from annif.suggestion import SuggestionBatch
except ImportError as missing:
    raise MissingExtraError(
        "Annif is not installed", remedy="pip install annif (it needs Python 3.10 to 3.13)"
    ) from missing

__all__ = ["Config", "ProductionConfig", "XMCBackend"]

MODEL = "xmcascade-model"  # the folder in the project's data directory


class XMCBackend(AnnifBackend):  # type: ignore[misc]
    """Suggests subjects with a model of this package; scores are probabilities.

    >>> from annif.backend import get_backend
    >>> get_backend("xmcascade").__name__
    'XMCBackend'
    """

    name = "xmcascade"
    DEFAULT_PARAMETERS = {"method": "xr-linear", "settings": "", "checkpoint": "", "limit": 100}  # noqa: RUF012

    _model: Model[Any, Any] | None = None

    def initialize(self, parallel: bool = False) -> None:
        """Load the model, once; among several processes, each takes one thread."""
        if self._model is not None:
            return
        folder = Path(self.datadir, MODEL)
        if not folder.is_dir():
            raise NotInitializedException(f"model {folder} not found", backend_id=self.backend_id)
        with self._explained():
            self._use(load(folder, threads=1 if parallel else None))

    def _use(self, model: Model[Any, Any]) -> None:
        self._ids = subject_ids(model.label_names, self.project.subjects)
        self._model = model

    def _train(self, corpus: Any, params: dict[str, Any], jobs: int = 0) -> None:
        if corpus == "cached":
            raise NotSupportedException(
                "Training from cached data is not supported; a checkpoint folder resumes training",
                backend_id=self.backend_id,
            )
        if corpus.is_empty():
            raise NotSupportedException("Cannot train with no documents", backend_id=self.backend_id)
        with self._explained():
            settings = settings_of(params["method"], params["settings"])
            model = MODELS[params["method"]](settings, threads=jobs or None)
            by_text = settings.label_documents or getattr(settings, "label_features", "pifa") != "pifa"
            language = self.project.vocab_lang if by_text else None
            documents = corpus_of(corpus.documents, self.project.subjects, language)
            for left_out in documents.left_out:
                self.warning(f"{left_out.count:,} left out: {left_out.reason} (first: {left_out.first})")
            self.info(f"learning from {documents.n_docs:,} documents, {documents.n_labels:,} subjects")
            model.fit(documents, checkpoint=params["checkpoint"] or None)
            model.save(Path(self.datadir, MODEL))
            self._use(model)

    def _suggest_batch(self, documents: list[Any], params: dict[str, Any]) -> Any:
        assert self._model is not None  # initialize has loaded it
        docs = [i for i, document in enumerate(documents) if document.text.strip()]
        texts = [documents[i].text for i in docs]
        with self._explained():
            ranking = self._model.rank(texts, max(1, int(params["limit"])))
        shape = (len(documents), len(self.project.subjects))
        return SuggestionBatch(suggestions(ranking, self._ids, docs, shape))

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Our errors as Annif's, which its command line shows in one line."""
        try:
            yield
        except XmcError as error:
            kind = ConfigurationException if isinstance(error, SettingError) else OperationFailedException
            raise kind(str(error), backend_id=self.backend_id) from error


class Config(default_config.Config):  # type: ignore[misc]
    """Annif's configuration for the command line; to name it is to have this backend."""


class ProductionConfig(default_config.ProductionConfig):  # type: ignore[misc]
    """Annif's configuration for a server, which loads all projects at its start."""


annif.backend._backend_fns.setdefault(XMCBackend.name, lambda: XMCBackend)
