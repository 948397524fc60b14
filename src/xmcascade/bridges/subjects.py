"""Annif's documents and subjects as a corpus, and rankings as its suggestions; Annif is not needed for it.

A subject is a label whose name is the subject's URI: vocabularies come and go, URIs stay.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from xmcascade.corpus import Corpus
from xmcascade.corpus.builder import CorpusBuilder
from xmcascade.errors import SettingError
from xmcascade.evaluate import Ranking
from xmcascade.models import MODELS, ModelSettings

__all__ = ["corpus_of", "settings_of", "subject_ids", "suggestions"]


def settings_of(method: str, text: str) -> ModelSettings:
    """A method's settings from text as it stands in Annif's configuration, with blanks between them.

    >>> settings_of("xr-linear", "beam=10 linear.cost=0.5").linear.cost
    0.5
    """
    if method not in MODELS:
        raise SettingError(f"method is {method!r:.60}", remedy=f"allowed: {', '.join(MODELS)}")
    return MODELS[method].settings_type().with_text(text.split())


def corpus_of(documents: Iterable[Any], subjects: Any, language: str | None = None) -> Corpus:
    """Annif's documents over the URIs of their subjects; documents without a text are left out, and counted.

    With a language, every subject of the vocabulary is a label, and its name in that language is its text.
    """
    names, texts = None, None
    if language is not None:
        texts = {subject.uri: subject.labels.get(language, "") for _, subject in subjects.active}
        names = list(texts)
    builder = CorpusBuilder(on_error="skip", label_names=names, source="the corpus", unit="document")
    for number, document in enumerate(documents, 1):
        builder.add(document.text, list(_uris(document.subject_set, subjects)), line=number)
    return builder.build(label_texts=texts)


def _uris(own: Iterable[int], subjects: Any) -> Iterator[str]:
    for number in own:
        try:
            yield subjects[number].uri
        except IndexError:  # no longer in the vocabulary, or excluded from the project
            continue


def subject_ids(names: Iterable[str], subjects: Any) -> npt.NDArray[np.int32]:
    """The vocabulary's number for each URI; -1 where it is no longer there."""
    found = (subjects.by_uri(name, warnings=False) for name in names)
    return np.array([-1 if number is None else number for number in found], np.int32)


def suggestions(
    ranking: Ranking, ids: npt.NDArray[np.int32], docs: Sequence[int], shape: tuple[int, int]
) -> Any:
    """Probabilities as Annif takes them: a CSR array, documents x subjects; `docs`: the ranking's rows in it.

    >>> ranking = Ranking([[1, 0]], [[2, 1]], [[0.75, 0.25]])
    >>> suggestions(ranking, np.array([5, 3]), [1], (2, 6)).toarray()[1].tolist()
    [0.0, 0.0, 0.0, 0.75, 0.0, 0.25]
    """
    found = np.where(ranking.labels >= 0, ids[ranking.labels], -1)
    rows = np.broadcast_to(np.asarray(docs, np.int64)[:, None], found.shape)
    kept = (found >= 0) & (ranking.probabilities > 0)
    return sp.csr_array((ranking.probabilities[kept], (rows[kept], found[kept])), shape=shape)
