"""A corpus that is written and read again is the same corpus."""

import json

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from reference.files import documents
from xmcascade.corpus import Corpus, read_corpus, write_corpus
from xmcascade.errors import DataError, SettingError
from xmcascade.store import Strings

odd = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=9).filter(str.strip)
nasty = st.sampled_from(
    [
        "a;b",
        "a,b",
        "a b",
        "a\tb",
        "a\nb",
        "a\r\nb",
        "\r",
        "🦊",
        '"',
        "'",
        "\\",
        "\0a",
        "\ufeff",
        "\u2028x",
        "[]",
        "null",
        "é",
        "e\u0301",
    ]
).filter(str.strip)
string = odd | nasty
weight = st.floats(2.0**-100, 2.0**100, width=32)


@st.composite
def corpora(draw):
    texts = draw(st.lists(string, min_size=1, max_size=6))
    labels = [draw(st.lists(string, max_size=4, unique=True)) for _ in texts]
    weights = [draw(st.lists(weight, min_size=len(row), max_size=len(row))) for row in labels]
    ids = draw(
        st.lists(st.text(st.characters(exclude_categories=["Cs"])), min_size=len(texts), max_size=len(texts))
    )
    names = sorted({name for row in labels for name in row})
    about = draw(st.dictionaries(st.sampled_from(names), string)) if names else {}
    return Corpus.from_lists(
        texts,
        labels,
        weights=weights if draw(st.booleans()) else None,
        ids=ids if draw(st.booleans()) else None,
        label_texts=about if draw(st.booleans()) else None,
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("written")


@pytest.mark.parametrize("suffix", ["", ".gz", ".xz", ".zst"])
@given(corpora())
def test_jsonl_keeps_the_documents(folder, suffix, corpus):
    path = folder / f"a.jsonl{suffix}"
    write_corpus(corpus, path)
    again = read_corpus(path)
    assert documents(again) == documents(corpus)
    assert again.label_names == corpus.label_names
    assert (again.labels != corpus.labels).nnz == 0


@given(corpora(), st.lists(string, max_size=3))
def test_parquet_keeps_everything(folder, corpus, more):
    corpus = corpus.over_labels(
        Strings.of(dict.fromkeys(more))
    )  # labels without documents, in an order of their own
    if more:
        corpus = Corpus(
            labels=corpus.labels,
            label_names=corpus.label_names,
            texts=corpus.texts,
            ids=corpus.ids,
            label_texts=Strings.of(name[::-1] for name in corpus.label_names),
        )
    path = folder / "a.parquet"
    write_corpus(corpus, path)
    again = read_corpus(path)
    assert documents(again) == documents(corpus)
    assert again.label_names == corpus.label_names
    assert again.label_texts == corpus.label_texts
    assert (again.labels != corpus.labels).nnz == 0


def test_a_part_of_a_corpus_can_be_written(tmp_path):
    corpus = Corpus.from_lists(
        [f"text {i}" for i in range(10)], [[f"label {i}"] for i in range(10)], ids="abcdefghij"
    )
    for name in ("a.jsonl", "a.parquet"):
        write_corpus(corpus.take([7, 2]), tmp_path / name)
        assert documents(read_corpus(tmp_path / name)) == documents(corpus.take([7, 2]))
    assert read_corpus(tmp_path / "a.parquet").n_labels == 10


def test_many_documents_cross_batches_and_row_groups(tmp_path):
    n = 70_000
    corpus = Corpus.from_lists([f"text {i}" for i in range(n)], [[f"label {i % 50}"] for i in range(n)])
    for name in ("a.jsonl.gz", "a.parquet"):
        write_corpus(corpus, tmp_path / name)
        again = read_corpus(tmp_path / name)
        assert again.texts == corpus.texts
        assert (again.labels != corpus.labels).nnz == 0


def test_jsonl_says_only_what_there_is_to_say(tmp_path):
    corpus = Corpus.from_lists(["é\n", "b"], [["x"], []])
    write_corpus(corpus, tmp_path / "a.jsonl")
    lines = (tmp_path / "a.jsonl").read_text("utf-8").splitlines()
    assert [json.loads(line) for line in lines] == [
        {"text": "é\n", "labels": ["x"]},
        {"text": "b", "labels": []},
    ]
    assert "é" in lines[0]


@pytest.mark.parametrize("name", ["a.txt", "a.csv", "a", "a.parquet.gz", "a.json"])
def test_other_formats_are_refused(tmp_path, name):
    with pytest.raises(SettingError) as caught:
        write_corpus(Corpus.from_lists(["a"]), tmp_path / name)
    assert str(caught.value).startswith(
        f"{name!r} does not end in a format that can be written. Remedy: use .jsonl"
    )
    assert list(tmp_path.iterdir()) == []


def test_a_corpus_of_features_cannot_be_written(tmp_path):
    matrix = sp.csr_matrix(np.eye(2, dtype=np.float32))
    corpus = Corpus(labels=matrix, label_names=Strings.of(["a", "b"]), features=matrix)
    with pytest.raises(DataError, match="this corpus has features but no texts"):
        write_corpus(corpus, tmp_path / "a.jsonl")
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_cannot_be_written_to_is_named(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(DataError, match=r"a\.jsonl: cannot be written"):
        write_corpus(Corpus.from_lists(["a"]), tmp_path / "file" / "a.jsonl")
