"""What stands between Annif and the models, without Annif."""

from types import SimpleNamespace

import numpy as np
import pytest

from xmcascade.bridges.subjects import corpus_of, settings_of, subject_ids, suggestions
from xmcascade.errors import SettingError
from xmcascade.evaluate import Ranking


class Vocabulary:
    """Subjects by number, as Annif's index has them; None is one that was removed."""

    def __init__(self, *uris):
        self.uris = uris

    def __getitem__(self, number):
        if self.uris[number] is None:
            raise IndexError(number)
        uri = self.uris[number]
        return SimpleNamespace(uri=uri, labels={"en": f"the {uri}"})

    def by_uri(self, uri, warnings=True):
        assert not warnings
        return self.uris.index(uri) if uri in self.uris else None

    @property
    def active(self):
        return [(i, self[i]) for i, uri in enumerate(self.uris) if uri is not None]


def document(text, *numbers):
    return SimpleNamespace(text=text, subject_set=numbers)


def test_subjects_become_labels_named_by_their_uris():
    vocabulary = Vocabulary("http://b", None, "http://a")
    corpus = corpus_of([document("one", 0, 2), document("two", 1), document("three", 1, 2)], vocabulary)
    assert list(corpus.label_names) == ["http://a", "http://b"]
    assert [corpus.label_set(i) for i in range(3)] == [["http://a", "http://b"], [], ["http://a"]]
    assert corpus.label_texts is None


def test_documents_without_a_text_are_left_out_and_counted():
    corpus = corpus_of([document(" ", 0), document("two", 0), document("", 0)], Vocabulary("http://b"))
    assert list(corpus.texts) == ["two"]
    assert [(left.count, left.first) for left in corpus.left_out] == [
        (2, "the corpus, document 1, field 'text'")
    ]


def test_with_a_language_every_subject_is_a_label_with_a_text():
    corpus = corpus_of([document("one", 3)], Vocabulary("http://b", None, "http://a", "http://c"), "en")
    assert list(corpus.label_names) == ["http://b", "http://a", "http://c"]
    assert list(corpus.label_texts) == ["the http://b", "the http://a", "the http://c"]
    assert corpus.label_set(0) == ["http://c"]


def test_subjects_that_are_gone_are_not_suggested():
    ids = subject_ids(["http://a", "http://b", "http://gone"], Vocabulary("http://b", None, "http://a"))
    assert ids.tolist() == [2, 0, -1]
    ranking = Ranking([[2, 0, 1], [0, -1, -1]], np.ones((2, 3)), [[0.9, 0.5, 0.25], [0.75, 0, 0]])
    found = suggestions(ranking, ids, [0, 2], (4, 3))
    assert found.toarray().tolist() == [[0.25, 0, 0.5], [0, 0, 0], [0, 0, 0.75], [0, 0, 0]]
    assert found.dtype == np.float32 and found.nnz == 3


def test_no_document_at_all():
    nothing = np.zeros((0, 5))
    found = suggestions(Ranking(nothing.astype(int), nothing, nothing), np.array([0]), [], (2, 3))
    assert found.shape == (2, 3) and found.nnz == 0


def test_settings_as_text():
    assert settings_of("parabel", "").trees == 3
    assert settings_of("xr-linear", " beam=3\n tree.levels=[4,8] ").tree.levels == (4, 8)
    with pytest.raises(SettingError, match="method is 'pecos'"):
        settings_of("pecos", "")
    with pytest.raises(SettingError, match="there is no setting 'beem'"):
        settings_of("xr-linear", "beem=3")
