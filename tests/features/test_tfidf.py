"""Tf-idf against scikit-learn, setting by setting, and against itself: threads, blocks, saving."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sklearn.feature_extraction.text import HashingVectorizer, TfidfTransformer, TfidfVectorizer

from reference import nasty
from xmcascade import TfidfSettings
from xmcascade.errors import DataError, NotFittedError, SettingError
from xmcascade.features import Tfidf, tfidf
from xmcascade.store import Strings

corpora = st.lists(nasty.texts, max_size=8)
choices = st.fixed_dictionaries(
    {
        "tokens": st.sampled_from(["word", "whitespace"]),
        "lowercase": st.booleans(),
        "ngrams": st.sampled_from([(1, 1), (1, 2), (2, 2), (1, 3), (3, 4)]),
        "sublinear": st.booleans(),
        "idf": st.booleans(),
        "l2": st.booleans(),
    }
)
WHITESPACE = {
    **{"tokens": "whitespace", "lowercase": True, "ngrams": (1, 2)},
    **{"sublinear": True, "idf": True, "l2": True},
}
TEXTS = ["the cat sat", "the dog sat on the cat", "", "a cat", "Dog CAT dog dog"]


def same_names(chosen):
    """Our settings under scikit-learn's names."""
    return {
        "token_pattern": r"(?u)\b\w\w+\b" if chosen["tokens"] == "word" else r"\S+",
        "lowercase": chosen["lowercase"],
        "ngram_range": tuple(chosen["ngrams"]),
    }


def weighting(chosen):
    return {
        "sublinear_tf": chosen["sublinear"],
        "use_idf": chosen["idf"],
        "norm": "l2" if chosen["l2"] else None,
    }


def scikit(texts, chosen, **more):
    """Terms and dense matrix of scikit-learn; it raises where nothing is left, we do not."""
    vectorizer = TfidfVectorizer(**same_names(chosen), **weighting(chosen), **more)
    try:
        return vectorizer, vectorizer.fit_transform(texts)
    except ValueError as error:
        assert (
            "empty vocabulary" in str(error)
            or "no terms remain" in str(error)
            or "max_df corresponds" in str(error)
        )
        return None, None


def assert_same(matrix, theirs):
    assert matrix.dtype == np.float32
    assert matrix.has_sorted_indices and not (np.diff(matrix.indptr) < 0).any()
    np.testing.assert_allclose(matrix.toarray(), theirs.toarray(), rtol=2e-6, atol=1e-7)


@given(texts=corpora, chosen=choices, unseen=corpora)
@example(texts=["ΟΔΟΣ Σ", "İstanbul İ", "straße \0 x\0y"], chosen=WHITESPACE, unseen=["Σ"])
@settings(max_examples=200, deadline=None)
def test_as_scikit_learn(texts, chosen, unseen):
    vectorizer, theirs = scikit(texts, chosen)
    fitted = Tfidf(**chosen)
    matrix = fitted.fit_transform(texts)
    if vectorizer is None:
        assert matrix.shape == (len(texts), 0)
        assert fitted.transform(unseen).shape == (len(unseen), 0)
        return
    assert list(fitted.terms) == vectorizer.get_feature_names_out().tolist()
    assert_same(matrix, theirs)
    if unseen:
        assert_same(fitted.transform(unseen), vectorizer.transform(unseen))
    assert (fitted.transform(texts) != matrix).nnz == 0


@given(
    texts=st.lists(nasty.texts, min_size=1, max_size=8),
    min_df=st.sampled_from([1, 2, 3, 0.0, 0.2, 0.5, 0.99]),
    max_df=st.sampled_from([1.0, 0.9, 0.5, 0.1]),
)
@settings(max_examples=100, deadline=None)
def test_document_frequency_bounds_as_scikit_learn(texts, min_df, max_df):
    chosen = TfidfSettings().to_dict() | {"ngrams": (1, 2)}
    vectorizer, theirs = scikit(texts, chosen, min_df=min_df, max_df=max_df)
    fitted = Tfidf(ngrams=(1, 2), min_df=min_df, max_df=max_df)
    matrix = fitted.fit_transform(texts)
    if vectorizer is None:
        assert matrix.shape[1] == 0
    else:
        assert list(fitted.terms) == vectorizer.get_feature_names_out().tolist()
        assert_same(matrix, theirs)


@given(totals=st.lists(st.integers(1, 40), min_size=1, max_size=8, unique=True), most=st.integers(1, 9))
@settings(max_examples=60, deadline=None)
def test_max_features_as_scikit_learn(totals, most):
    texts = [" ".join([f"w{i}"] * total) for i, total in enumerate(totals)] + ["w0"]
    totals = [totals[0] + 1, *totals[1:]]
    if len(set(totals)) < len(totals):
        return  # scikit-learn breaks ties as its sort happens to
    vectorizer, theirs = scikit(texts, TfidfSettings().to_dict(), max_features=most)
    fitted = Tfidf(max_features=most)
    matrix = fitted.fit_transform(texts)
    assert list(fitted.terms) == vectorizer.get_feature_names_out().tolist()
    assert_same(matrix, theirs)


def test_max_features_gives_ties_to_the_first_in_order():
    assert list(Tfidf(max_features=2).fit(["dd cc bb", "cc aa"]).terms) == ["aa", "cc"]


@given(
    texts=st.lists(nasty.texts, min_size=1, max_size=6),
    chosen=choices,
    n=st.sampled_from([1, 2, 16, 1000, 2**20]),
)
@settings(max_examples=100, deadline=None)
def test_hashed_as_scikit_learn(texts, chosen, n):
    counted = HashingVectorizer(n_features=n, alternate_sign=False, norm=None, **same_names(chosen))
    transformer = TfidfTransformer(**weighting(chosen))
    theirs = transformer.fit_transform(counted.transform(texts))
    fitted = Tfidf(hashed=n, **chosen)
    assert_same(fitted.fit_transform(texts), theirs)
    assert fitted.n_features == n
    others = ["cat dog", *texts[::-1]]
    assert_same(fitted.transform(others), transformer.transform(counted.transform(others)))


@pytest.mark.parametrize("hashed", [0, 64])
@pytest.mark.parametrize("block_bytes", [1, 7, 100, 1 << 20])
@pytest.mark.parametrize("threads", [1, 2, 8])
def test_neither_threads_nor_blocks_change_the_matrix(monkeypatch, hashed, block_bytes, threads):
    texts = [f"{word} w{i} Σ{i % 7} 😀" for i in range(40) for word in ("Cat", "", "dög", "ΟΔΟΣ")]
    usual = Tfidf(hashed=hashed, ngrams=(1, 2), threads=1)
    expected = usual.fit_transform(texts)
    monkeypatch.setattr(tfidf, "BLOCK_BYTES", block_bytes)
    other = Tfidf(hashed=hashed, ngrams=(1, 2), threads=threads)
    for matrix in (other.fit_transform(texts), other.transform(texts), usual.transform(texts)):
        assert_identical(matrix, expected)
    assert other.terms == usual.terms
    assert other.idf.tobytes() == usual.idf.tobytes()


def assert_identical(a, b):
    assert a.shape == b.shape
    for part in ("indptr", "indices", "data"):
        assert np.array_equal(getattr(a, part), getattr(b, part)), part


@pytest.mark.parametrize(
    "values", [{}, {"hashed": 32}, {"idf": False}, {"min_df": 9}, {"tokens": "whitespace"}]
)
def test_restored_is_exact(values):
    fitted = Tfidf(**values).fit(TEXTS)
    again = Tfidf.restore(fitted.settings, *fitted.state())
    assert_identical(again.transform(TEXTS), fitted.transform(TEXTS))
    assert again.n_features == fitted.n_features


@pytest.mark.parametrize("idf", [np.zeros(0), np.zeros(2), np.zeros((5, 1)), np.zeros(6)])
@pytest.mark.parametrize("used", [True, False])
def test_restoring_refuses_idf_that_does_not_fit(idf, used):
    fitted = Tfidf(idf=used).fit(TEXTS)
    if used or idf.size:
        with pytest.raises(DataError, match=r"idf values"):
            Tfidf.restore(fitted.settings, {"idf": idf}, fitted.state()[1])


def test_fitting_again_forgets():
    fitted = Tfidf().fit(["one two"])
    fitted.fit(["three"])
    assert list(fitted.terms) == ["three"]
    assert fitted.transform(["one three"]).toarray().tolist() == [[1.0]]


@pytest.mark.parametrize("texts", [[], [""], ["", " . ", "a"]])
def test_nothing_to_count(texts):
    fitted = Tfidf()
    assert fitted.fit_transform(texts).shape == (len(texts), 0)
    assert fitted.transform(["cat"]).shape == (1, 0)
    assert fitted.transform([]).shape == (0, 0)
    assert Tfidf(hashed=8).fit_transform(texts).shape == (len(texts), 8)


def test_packed_slices_are_read_from_their_start():
    packed = Strings.of(["before", *TEXTS, "after"])[1:-1]
    assert_identical(Tfidf().fit_transform(packed), Tfidf().fit_transform(TEXTS))


def test_one_long_document():
    texts = ["cat " * 300_000 + "dog", "dog"]
    matrix = Tfidf(sublinear=False, idf=False, l2=False).fit_transform(texts)
    assert matrix.toarray().tolist() == [[300_000, 1], [0, 1]]


def test_a_document_too_long_for_the_kernels_is_refused(monkeypatch):
    monkeypatch.setattr(tfidf, "MAX_TEXT_BYTES", 20)
    with pytest.raises(DataError, match=r"a document of 24 bytes is too long.*Remedy"):
        Tfidf().fit(["short", "w" * 24])


@pytest.mark.parametrize("use", [lambda t: t.transform(["x"]), lambda t: t.state(), lambda t: t.n_features])
def test_not_fitted(use):
    with pytest.raises(NotFittedError, match=r"Remedy: call fit"):
        use(Tfidf())


@pytest.mark.parametrize(
    ("name", "value"),
    [("ngrams", v) for v in [(0, 1), (2, 1), (1, 9), (1,), (1, 2, 3), "12", (1.0, 2), None, 1]]
    + [("min_df", v) for v in [-1, -0.1, 1.5, float("inf"), float("nan"), "1", None, True, 2**64]]
    + [("max_df", v) for v in [0, -1, 1.01, 2, float("nan"), "1", None, True]]
    + [("max_features", v) for v in [0, -1, 1.5, "9", True]]
    + [("hashed", v) for v in [-1, 2**31, 1.5, None, True]]
    + [("tokens", v) for v in ["words", "", None, 1, ["word"]]]
    + [(name, v) for name in ("lowercase", "sublinear", "idf", "l2") for v in [0, 1, None, "yes"]],
)
def test_a_bad_setting_is_named(name, value):
    with pytest.raises(SettingError, match=rf"^{name} is .*Remedy: allowed: "):
        Tfidf(**{name: value})
