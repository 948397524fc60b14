"""The counting kernels against Python strings, and MurmurHash against its twin and scikit-learn."""

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sklearn.utils import murmurhash3_32

from reference import nasty
from reference import text as twin
from xmcascade.features.tfidf import Tfidf
from xmcascade.kernels import rows, text
from xmcascade.store import Strings

SPELLINGS = [("word", True), ("word", False), ("whitespace", True), ("whitespace", False)]
ngrams = st.tuples(st.integers(1, 4), st.integers(0, 3)).map(lambda n: (n[0], n[0] + n[1]))


def kernel_words(texts, tokens="word", lowercase=True):
    """What the kernel and its callers make of texts: the arguments of the counting kernels."""
    return Tfidf(tokens=tokens, lowercase=lowercase)._words(Strings.of(texts))


def spelled(data, offsets):
    return list(Strings(data, offsets))


def new_counts(texts, n_min=1, n_max=1, **options):
    data, offsets, _, docs_with, total, row, ids, counts = text.count_new(
        *kernel_words(texts, **options), n_min, n_max
    )
    names = spelled(data, offsets)
    assert len(set(names)) == len(names)
    found = [
        Counter({names[ids[i]]: int(counts[i]) for i in range(row[doc], row[doc + 1])})
        for doc in range(len(texts))
    ]
    assert dict(zip(names, docs_with.tolist(), strict=True)) == Counter(term for doc in found for term in doc)
    assert dict(zip(names, total.tolist(), strict=True)) == Counter(
        t for doc in found for t in doc.elements()
    )
    return found


@pytest.mark.parametrize(("tokens", "lowercase"), SPELLINGS)
@given(texts=st.lists(nasty.texts_with_surrogates, max_size=5))
@example(texts=["ΟΔΟΣ ΣΑΣ", "İstanbul", "", "Ⱥ" * 50])
@example(texts=["a\0b \0 \0\0", "\ud800 ab\udfffcd"])
@settings(max_examples=150, deadline=None)
def test_words(tokens, lowercase, texts):
    out, starts, ends, doc_words = kernel_words(texts, tokens, lowercase)
    found = [
        [bytes(out[starts[w] : ends[w]]).decode("utf-8", "surrogatepass") for w in range(lo, hi)]
        for lo, hi in pairwise(doc_words)
    ]
    assert found == [twin.words(each, tokens, lowercase) for each in texts]


@given(texts=st.lists(st.one_of(nasty.texts, nasty.texts_with_surrogates), max_size=5), n=ngrams)
@settings(max_examples=150, deadline=None)
def test_new_counts(texts, n):
    assert new_counts(texts, *n) == twin.counts(texts, *n)


@given(texts=st.lists(nasty.texts, max_size=5), n=ngrams, known=st.integers(0, 5))
@settings(max_examples=150, deadline=None)
def test_known_counts(texts, n, known):
    terms = sorted({term for each in twin.counts(texts[:known], *n) for term in each})
    packed = Strings.of(terms)
    hashes = text.hash_terms(packed.data, packed.offsets)
    slots = text.rehash(hashes, len(hashes), 1 << max(4, (2 * len(terms)).bit_length()))
    row, columns, counts = text.count_known(
        *kernel_words(texts), *n, slots, packed.data, packed.offsets, hashes, 0
    )
    for doc, expected in enumerate(twin.counts(texts, *n)):
        lo, hi = row[doc], row[doc + 1]
        found = columns[lo:hi].tolist()
        assert found == sorted(set(found))
        named = {terms[c]: int(k) for c, k in zip(found, counts[lo:hi], strict=True)}
        assert named == {term: k for term, k in expected.items() if term in terms}


def test_an_n_gram_never_crosses_documents():
    texts = ["one two", "", "three four", "five"]
    assert new_counts(texts, 2, 2) == [Counter(["one two"]), Counter(), Counter(["three four"]), Counter()]
    assert new_counts(texts, 3, 8) == [Counter()] * 4


def test_a_short_word_does_not_part_an_n_gram():
    assert new_counts(["salt a pepper"], 2, 2) == [Counter(["salt pepper"])]  # as scikit-learn


@pytest.mark.parametrize("n_terms", [4095, 4096, 4097, 20_000])
def test_the_table_grows(n_terms):
    texts = [f"w{i} w{i * 7 % n_terms}" for i in range(n_terms)]
    assert new_counts(texts) == twin.counts(texts)


def test_merging_blocks_grows_the_vocabulary(monkeypatch):
    monkeypatch.setattr("xmcascade.features.tfidf.BLOCK_BYTES", 1 << 14)
    texts = [f"w{i} v{i % 9000} common" for i in range(12_000)]
    fitted = Tfidf(sublinear=False, idf=False, l2=False)
    matrix = fitted.fit_transform(texts)
    assert list(fitted.terms) == sorted({word for each in texts for word in each.split()})
    assert matrix.sum() == 3 * len(texts)


@given(new=st.lists(st.sampled_from(["aa", "ab", "b", "", "é", "aaa"]) | st.text(max_size=3), unique=True))
@settings(max_examples=60, deadline=None)
def test_inserted_terms_get_one_id_each(new):
    kept, more = Strings.of(["aa", "é"]), Strings.of(new)
    data = np.zeros(kept.n_bytes + more.n_bytes, np.uint8)
    data[: kept.n_bytes] = kept.data
    offsets = np.zeros(3 + len(new), np.int64)
    offsets[:3] = kept.offsets
    hashes = np.zeros(2 + len(new), np.uint64)
    hashes[:2] = text.hash_terms(kept.data, kept.offsets)
    slots = text.rehash(hashes, 2, 1 << (2 * len(hashes)).bit_length())
    new_hashes = text.hash_terms(more.data, more.offsets)
    n_terms, ids = text.insert_terms(slots, data, offsets, hashes, 2, more.data, more.offsets, new_hashes)
    names = spelled(data, offsets[: n_terms + 1])
    assert names[:2] == ["aa", "é"]
    assert [names[i] for i in ids] == new
    assert len(set(names)) == n_terms


def test_equal_hashes_are_told_apart_by_their_bytes():
    packed = Strings.of(["one", "two", "six"])
    same = np.full(3, 7, np.uint64)
    data, offsets, hashes = np.zeros(9, np.uint8), np.zeros(4, np.int64), np.zeros(3, np.uint64)
    slots = text.rehash(hashes, 0, 16)
    n_terms, ids = text.insert_terms(slots, data, offsets, hashes, 0, packed.data, packed.offsets, same)
    assert (n_terms, ids.tolist(), spelled(data, offsets)) == (3, [0, 1, 2], ["one", "two", "six"])


@given(st.one_of(nasty.texts.map(str.encode), st.binary(max_size=40)))
@example(b"")
@example(b"\xff" * 7)
@settings(max_examples=300, deadline=None)
def test_murmur_hash(raw):
    padded = np.frombuffer(b"??" + raw + b"??", np.uint8)
    found = text._murmur3(padded, 2, 2 + len(raw))
    assert found == twin.murmur3(raw) == murmurhash3_32(raw, seed=0)


@given(texts=st.lists(nasty.texts, max_size=4), n=ngrams, n_hashed=st.sampled_from([1, 2, 7, 64, 2**31 - 1]))
@settings(max_examples=100, deadline=None)
def test_hashed_counts(texts, n, n_hashed):
    nothing = Strings.of(())
    hashes = text.hash_terms(nothing.data, nothing.offsets)
    slots = text.rehash(hashes, 0, 16)
    row, columns, counts = text.count_known(
        *kernel_words(texts), *n, slots, nothing.data, nothing.offsets, hashes, n_hashed
    )
    for doc, each in enumerate(texts):
        expected = Counter(abs(twin.murmur3(term.encode())) % n_hashed for term in twin.terms(each, *n))
        found = zip(
            columns[row[doc] : row[doc + 1]].tolist(), counts[row[doc] : row[doc + 1]].tolist(), strict=True
        )
        assert list(found) == sorted(expected.items())


@given(
    counts=st.lists(st.dictionaries(st.integers(0, 7), st.integers(1, 2**31 - 1)), max_size=4),
    kept=st.sets(st.integers(0, 7)),
)
@settings(max_examples=100, deadline=None)
def test_rows_keep_the_chosen_columns_in_order(counts, kept):
    row = np.cumsum([0, *map(len, counts)])
    ids = np.array([term for each in counts for term in each], np.int32)
    numbers = np.array([k for each in counts for k in each.values()], np.int32)
    column_of = np.full(8, -1, np.int32)
    column_of[sorted(kept, reverse=True)] = np.arange(len(kept))
    sizes = rows.kept_per_row(row, ids, column_of)
    indptr = np.cumsum([0, *sizes])
    columns, values = np.empty(indptr[-1], np.int32), np.empty(indptr[-1], np.float64)
    rows.fill_rows(row, ids, numbers, column_of, indptr, columns, values)
    for doc, each in enumerate(counts):
        found = zip(
            columns[indptr[doc] : indptr[doc + 1]], values[indptr[doc] : indptr[doc + 1]], strict=True
        )
        assert list(found) == sorted((column_of[term], k) for term, k in each.items() if term in kept)


@pytest.mark.parametrize("sublinear", [True, False])
@pytest.mark.parametrize("l2", [True, False])
@pytest.mark.parametrize("idf", [np.array([1.0, 2.5, 3.0]), np.zeros(0)], ids=["idf", "tf"])
def test_weights(sublinear, l2, idf):
    dense = np.array([[1.0, 0, 4], [0, 0, 0], [2, 3, 1]])
    indptr, columns = np.array([0, 2, 2, 5]), np.array([0, 2, 0, 1, 2])
    values = dense[dense > 0].astype(np.float32)
    rows.weigh_rows(indptr, columns, values, idf, sublinear, l2)
    expected = np.where(dense > 0, 1 + np.log(np.maximum(dense, 1)), 0) if sublinear else dense
    expected = expected * (idf if len(idf) else 1)
    if l2:
        expected = expected / np.maximum(np.linalg.norm(expected, axis=1, keepdims=True), 1e-30)
    np.testing.assert_allclose(values, expected[dense > 0], rtol=1e-6)
