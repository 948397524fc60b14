"""Feature matrices: svmlight with a header that must hold, and PECOS's pairs of npz files."""

import io
import warnings
import zipfile

import numpy as np
import pytest
import scipy.sparse as sp

from reference.files import npz, packed
from xmcascade.corpus import matrices, read_corpus
from xmcascade.corpus.lines import COMPRESSED
from xmcascade.errors import DataError

GOOD = b"3 4 5\n0,2 0:1.5 3:2\n 1:1e-3\n4 2:-1\n"
FEATURES = [[1.5, 0, 0, 2], [0, 0.001, 0, 0], [0, 0, -1, 0]]
LABELS = [[1, 0, 1, 0, 0], [0, 0, 0, 0, 0], [0, 0, 0, 0, 1]]


@pytest.fixture(autouse=True)
def no_warnings():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


@pytest.fixture
def write(tmp_path):
    def write(name, data):
        (tmp_path / name).write_bytes(data if isinstance(data, bytes) else data.encode())
        return tmp_path / name

    return write


def check(corpus):
    assert np.allclose(corpus.features.toarray(), FEATURES)
    assert corpus.labels.toarray().tolist() == LABELS
    assert list(corpus.label_names) == list("01234")
    assert corpus.texts is None
    assert (corpus.features.dtype, corpus.labels.dtype) == (np.float32, np.float32)


@pytest.mark.parametrize("suffix", ["", *COMPRESSED])
@pytest.mark.parametrize("change", ["as it is", "windows", "mark", "no last end", "blank end", "tabs"])
def test_svmlight_reads_alike(write, suffix, change):
    data = {
        "as it is": GOOD,
        "windows": GOOD.replace(b"\n", b"\r\n"),
        "mark": b"\xef\xbb\xbf" + GOOD,
        "no last end": GOOD.rstrip(),
        "blank end": GOOD + b"\n  \n",
        "tabs": GOOD.replace(b" 3:2", b"\t3:2").replace(b"3 4 5", b"3\t4 5 "),
    }[change]
    check(read_corpus(write("a.svm" + suffix, packed(data, suffix))))


def test_a_blank_svmlight_line_is_a_document_without_anything(write):
    corpus = read_corpus(write("a.svm", "2 1 1\n\n0 0:1\n"))
    assert corpus.features.toarray().tolist() == [[0], [1]]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (
            "0,1 0:1\n",
            'a.svm, line 1: there is no header. Remedy: write "documents features labels" as three numbers',
        ),
        ("1 2\n0 0:1\n", "a.svm, line 1: there is no header"),
        ("9" * 5000 + " 1 1\n", "a.svm, line 1: there is no header"),
        (
            "2 4 5\n0 0:1\n",
            "a.svm, line 1: the header says 2 documents, the file has 1. Remedy: correct the header",
        ),
        (
            "999999999999 4 5\n0 0:1\n",
            "a.svm, line 1: the header says 999,999,999,999 documents, the file has 1",
        ),
        ("0 4 5\n0 0:1\n", "a.svm, line 1: the header says 0 documents, the file has 1"),
        (
            "1 1 999999999999\n0 0:1\n",
            "a.svm: it claims 999,999,999,999 labels, of which documents use 1 at most. Remedy: correct",
        ),
        ("1 1 99999999\n0 0:1\n", "a.svm: it claims 99,999,999 labels, of which documents use 1 at most"),
        (
            "1 999999999999 1\n0 0:1\n",
            "a.svm: it claims 999,999,999,999 features; 2,147,483,647 are possible",
        ),
        (
            "1 4 5\n5 0:1\n",
            "a.svm, line 2: a label number is outside the header's 0 to 4. Remedy: write \"label",
        ),
        ("1 4 5\n-1 0:1\n", "a.svm, line 2: a label number is outside the header's 0 to 4"),
        ("1 4 5\n0 4:1\n", "a.svm, line 2: a feature number is outside the header's 0 to 3"),
        ("1 4 5\n0,0 0:1\n", "a.svm, line 2: a label number occurs twice"),
        ("1 4 5\n0 0:1 0:1\n", "a.svm, line 2: a feature number occurs twice"),
        ("1 4 5\n0 0:nan\n", "a.svm, line 2: a feature's value is not a finite number"),
        ("1 4 5\n0 0:1e39\n", "a.svm, line 2: a feature's value is not a finite number"),
        ("1 4 5\n0 0:inf\n", "a.svm, line 2: a feature's value is not a finite number"),
        ("1 4 5\nx 0:1\n", "a.svm, line 2: 'x' is not a number"),
        ("1 4 5\n0 0:" + "x" * 99999 + "\n", "a.svm, line 2: 'xxxxxx"),
        ("1 4 5\n0 0\n", "a.svm, line 2: '' is not a number"),
        ("1 4 5\n0 1_0:1\n", "a.svm, line 2: '1_0' is not a number"),
        ("1 4 5\n0 1:1:1\n", "a.svm, line 2: '1:1' is not a number"),
        ("1 4 5\n" + "9" * 5000 + " 1:1\n", "a.svm, line 2: '999999"),
    ],
)
def test_a_bad_svmlight_file(write, data, message):
    with pytest.raises(DataError) as caught:
        read_corpus(write("a.svm", data))
    assert str(caught.value).startswith(message)
    assert "Remedy: " in str(caught.value)
    assert len(str(caught.value)) < 250


def test_svmlight_lines_left_out_count_for_the_header(write):
    corpus = read_corpus(write("a.svm", b"4 4 5\n0 0:1\nx\n\xff\n1 1:1\n"), on_error="skip")
    assert corpus.labels.toarray()[:, :2].tolist() == [[1, 0], [0, 1]]
    assert {left.reason: (left.count, left.first) for left in corpus.left_out} == {
        "line not svmlight": (1, "a.svm, line 3"),
        "line not UTF-8": (1, "a.svm, line 4"),
    }


def test_label_names_for_matrices(write):
    names = write("names.txt", "a\nb\nc\nd\ne\n")
    assert list(read_corpus(write("a.svm", GOOD), label_names=str(names)).label_names) == list("abcde")
    short = write("short.txt", "a\nb\n")
    with pytest.raises(
        DataError, match=r"a\.svm: 2 label names for 5 labels. Remedy: give one name for each label"
    ):
        read_corpus(write("a.svm", GOOD), label_names=str(short))
    twice = write("twice.txt", "a\nb\na\n")
    with pytest.raises(DataError, match=r"twice\.txt, line 3: the name 'a' occurs twice"):
        read_corpus(write("a.svm", GOOD), label_names=str(twice))


def test_ten_million_label_names_take_a_moment(write):
    assert read_corpus(write("a.svm", "1 1 10000000\n0 0:1\n")).label_names[9_999_999] == "9999999"


@pytest.mark.parametrize("suffix", ["", *COMPRESSED])
def test_npz_finds_the_labels_beside_it(write, suffix):
    write("Y.trn.npz" + suffix, packed(npz(LABELS), suffix))
    check(read_corpus(write("X.trn.npz" + suffix, packed(npz(FEATURES), suffix))))


def test_npz_with_the_labels_named_or_without(write):
    check(read_corpus(write("a.npz", npz(FEATURES)), labels_file=str(write("b.npz", npz(LABELS)))))
    assert read_corpus(write("a.npz", npz(FEATURES)), need_labels=False).n_labels == 0


@pytest.mark.parametrize("form", ["csr", "csc", "coo", "bsr", "dia"])
def test_npz_of_every_sparse_form_and_number(write, form):
    for kind in (np.float64, np.int8, bool):
        out = io.BytesIO()
        sp.save_npz(out, sp.csr_matrix(np.array(LABELS, kind)).asformat(form))
        write("Y.npz", out.getvalue())
        check(read_corpus(write("X.npz", npz(FEATURES)), labels_file=str(write("Y.npz", out.getvalue()))))


def test_zeros_among_the_labels_are_no_labels(write):
    out = io.BytesIO()
    sp.save_npz(out, sp.csr_matrix((np.array([0.0, 2.0]), [0, 1], [0, 2]), shape=(1, 2)))
    corpus = read_corpus(write("a.npz", npz([[1]])), labels_file=str(write("b.npz", out.getvalue())))
    assert (corpus.labels.indices.tolist(), corpus.labels.data.tolist()) == ([1], [2])


def saved(**arrays):
    out = io.BytesIO()
    np.savez_compressed(out, **arrays)
    return out.getvalue()


def csr(shape, indices=(0,), indptr=(0, 1), data=(1.0,), form="csr"):
    return saved(
        format=np.array(form.encode()),
        shape=np.array(shape),
        data=np.array(data),
        indices=np.array(indices),
        indptr=np.array(indptr),
    )


def huge_member():
    """A matrix whose header claims 10^12 values."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(csr((1, 1)))) as old, zipfile.ZipFile(out, "w") as new:
        for name in old.namelist():
            data = old.read(name)
            new.writestr(name, data.replace(b"(1,)", b"(1000000000000,)") if name == "data.npy" else data)
    return out.getvalue()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (
            b"",
            "X.npz: not a sparse matrix (File is not a zip file). Remedy: make it with scipy.sparse.save_npz",
        ),
        (b"PK\x03\x04 not really", "X.npz: not a sparse matrix"),
        (npz(FEATURES)[:-30], "X.npz: not a sparse matrix"),
        (saved(a=np.arange(3)), "X.npz: not a sparse matrix"),
        (csr((1, 1), data=[1j]), "X.npz: not a sparse matrix (its values are of type complex128)"),
        (csr((1, 1), data=["a"]), "X.npz: not a sparse matrix"),
        (csr((10**12, 1)), "X.npz: not a sparse matrix"),
        (csr((1, 10**12)), "X.npz: it claims 1,000,000,000,000 features; 2,147,483,647 are possible"),
        (csr((1, 1), indices=[5]), "X.npz: not a sparse matrix"),
        (csr((1, 1), indices=[-1]), "X.npz: not a sparse matrix"),
        (csr((1, 1), indptr=[0, 9]), "X.npz: not a sparse matrix"),
        (csr((1, 10**10), form="csc", indptr=[0, 1]), "X.npz: not a sparse matrix"),
        (csr((10**10, 1), form="csc"), "X.npz: not a sparse matrix ((10000000000, 1) with 1 values)"),
        (csr((1, 1), data=[float("nan")]), "X.npz: a value is NaN or infinite. Remedy: use 32-bit floats"),
        (csr((1, 1), data=[1e300]), "X.npz: a value is NaN or infinite"),
        (huge_member(), "X.npz: not a sparse matrix"),
    ],
)
def test_a_bad_npz_file(write, data, message):
    write("Y.npz", npz([[1]]))
    with pytest.raises(DataError) as caught:
        read_corpus(write("X.npz", data), labels_file=str(write("Y.npz", npz([[1]]))))
    assert str(caught.value).startswith(message)
    assert "Remedy: " in str(caught.value)


def test_an_npz_that_would_unpack_to_a_thousand_times_its_size(write):
    bomb = csr((1, 1), data=np.zeros(20_000_000))
    assert len(bomb) < 300_000
    with pytest.raises(DataError, match=r"X\.npz: not a sparse matrix \(.* bytes would unpack to 160,"):
        read_corpus(write("X.npz", bomb))


def test_labels_claimed_by_an_npz_must_be_plausible(write):
    path, labels = write("a.npz", npz([[1]])), write("b.npz", csr((1, 99_999_999)))
    with pytest.raises(
        DataError, match=r"b\.npz: it claims 99,999,999 labels, of which documents use 1 at most"
    ):
        read_corpus(path, labels_file=str(labels))


def test_npz_files_that_disagree_or_are_missing(write):
    path = write("X.trn.npz", npz(FEATURES))
    with pytest.raises(DataError, match=r"Y\.trn\.npz: there is no such file"):
        read_corpus(path)
    labels = write("Y.trn.npz", npz([[1]]))
    with pytest.raises(
        DataError, match=r"X\.trn\.npz has 3 rows, Y\.trn\.npz has 1. Remedy: give the two files of one"
    ):
        read_corpus(path)
    with pytest.raises(DataError, match=r"Y\.trn\.npz: this is the file of labels. Remedy: name the X file"):
        read_corpus(labels)
    write("Y.trn.npz", npz([[-1], [1], [1]]))
    with pytest.raises(DataError, match=r"Y\.trn\.npz: a label's weight is below 0"):
        read_corpus(path)


def test_limits_are_as_the_messages_say():
    assert np.iinfo(np.int32).max == matrices.MAX_ID
    assert np.isfinite(np.float32(matrices.MAX_VALUE))
