"""Confusions are real swaps, and the worst documents are the surest mistakes."""

import numpy as np
import scipy.sparse as sp

from xmcascade import Corpus
from xmcascade.evaluate import Ranking
from xmcascade.report.mistakes import confusions, worst_documents

NAMES = ["cat", "lynx", "dog", "common", "rare"]


def ranking(labels, probabilities=None):
    labels = np.array(labels)
    chances = np.full(labels.shape, 0.5) if probabilities is None else np.array(probabilities)
    return Ranking(labels, chances, chances)


def matrix(rows):
    return sp.csr_matrix(np.array([[int(i in row) for i in range(5)] for row in rows]))


def test_swapped_labels_are_found_both_ways():
    truth = matrix([[0]] * 4 + [[1]] * 2 + [[2]] * 5)
    found = confusions(truth, ranking([[1]] * 4 + [[0]] * 2 + [[2]] * 5), NAMES)
    assert [(c.true, c.predicted, c.documents, c.the_other_way, c.missed) for c in found] == [
        ("cat", "lynx", 4, 2, 4)
    ]


def test_what_was_found_is_not_confused():
    truth = matrix([[0, 2]] * 3)
    assert confusions(truth, ranking([[2, 0, 1]] * 3), NAMES) == []


def test_only_as_many_predictions_count_as_there_are_labels():
    truth = matrix([[0]] * 3)
    assert confusions(truth, ranking([[0, 1, 2]] * 3), NAMES) == []


def test_what_happens_once_is_no_habit():
    assert confusions(matrix([[0]]), ranking([[1]]), NAMES) == []


def test_a_label_is_listed_once_with_its_closest():
    """ "common" is told everywhere; "lynx" only where "cat" is missed."""
    truth = matrix([[0, 2]] * 3 + [[2]] * 9 + [[4]] * 9)
    told = [[1, 3]] * 3 + [[3, -1]] * 18
    found = confusions(truth, ranking(told), NAMES)
    assert len({c.true for c in found}) == len(found)
    assert next(c for c in found if c.true == "cat").predicted == "lynx"


def test_the_surest_mistake_is_first():
    corpus = Corpus.from_lists(["one", "two", "three"], [["a"], ["b"], ["b"]], ids=["x", "y", "z"])
    told = ranking([[0, 1], [0, 1], [0, 1]], [[0.9, 0.1], [0.6, 0.2], [0.8, 0.2]])
    found = worst_documents(corpus, told)
    assert [wrong.id for wrong in found] == ["z", "y"]  # of equal quality; "one" is all right
    assert found[0].predicted == (("a", np.float32(0.8), False), ("b", np.float32(0.2), True))
    assert found[0].true == ("b",) and found[0].ndcg < 100


def test_long_texts_are_cut_and_features_have_none():
    corpus = Corpus.from_lists(["word " * 1000], [["a"]]).over_labels(
        Corpus.from_lists(["x"], [["b"]]).label_names
    )
    (wrong,) = worst_documents(corpus, ranking([[0]]))
    assert wrong.excerpt.endswith("…") and len(wrong.excerpt) <= 280
    plain = Corpus(labels=corpus.labels, label_names=corpus.label_names, features=sp.csr_matrix((1, 3)))
    assert worst_documents(plain, ranking([[0]]))[0].excerpt == ""
