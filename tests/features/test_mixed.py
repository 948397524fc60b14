import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from xmcascade.errors import DataError
from xmcascade.features import MixedRows


def parts(n=6, n_sparse=5, n_dense=3):
    rng = np.random.default_rng(0)
    sparse = sp.random(n, n_sparse, 0.4, "csr", np.float32, rng=rng)
    sparse.sort_indices()
    return sparse, rng.normal(size=(n, n_dense)).astype(np.float32)


def assert_holds(rows, sparse, dense):
    """The same numbers, as the kernels want them."""
    assert (len(rows), rows.n_sparse, rows.n_dense) == (len(dense), sparse.shape[1], dense.shape[1])
    np.testing.assert_array_equal(rows.sparse.toarray(), sparse)
    np.testing.assert_array_equal(rows.dense, dense)
    starts, columns, values, beside = rows.arrays()
    assert (starts.dtype, columns.dtype, values.dtype, beside.dtype) == (
        np.int64,
        np.int32,
        np.float32,
        np.float32,
    )
    assert beside.flags.c_contiguous
    for doc in range(len(rows)):
        here = slice(starts[doc], starts[doc + 1])
        assert (np.diff(columns[here]) > 0).all()
        np.testing.assert_array_equal(values[here], sparse[doc, columns[here]])


def test_both_are_kept_side_by_side():
    sparse, dense = parts()
    assert_holds(MixedRows.of(sparse, dense), sparse.toarray(), dense)


def test_sparse_alone_has_no_dense_columns():
    sparse, _ = parts()
    assert_holds(MixedRows.of(sparse), sparse.toarray(), np.zeros((6, 0)))


@pytest.mark.parametrize("form", [np.asarray, np.ndarray.tolist, np.asfortranarray])
def test_dense_alone_has_no_sparse_columns(form):
    _, dense = parts()
    assert_holds(MixedRows.of(form(dense)), np.zeros((6, 0)), dense)


def test_what_is_ready_is_not_copied():
    sparse, dense = parts()
    rows = MixedRows.of(sparse, dense)
    assert rows.sparse is sparse
    assert np.shares_memory(rows.dense, dense)
    assert MixedRows.of(rows) is rows
    for array, own in zip(rows.arrays()[1:], (sparse.indices, sparse.data, dense), strict=True):
        assert np.shares_memory(array, own)


def test_kernels_cannot_write():
    for array in MixedRows.of(*parts()).arrays():
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0


@pytest.mark.parametrize("dtype", [np.float64, np.int64, np.float32])
@pytest.mark.parametrize("form", ["csr", "csc", "coo", "lil"])
def test_any_sparse_format_and_type(form, dtype):
    counts = sp.csr_matrix(np.array([[0, 2, 0], [3, 0, 1], [0, 0, 0]])).astype(dtype).asformat(form)
    assert_holds(MixedRows.of(counts, np.ones((3, 1), dtype)), counts.toarray(), np.ones((3, 1)))
    assert counts.dtype == dtype and counts.format == form


def test_arrays_of_scipy_are_taken_too():
    sparse, dense = parts()
    assert_holds(MixedRows.of(sp.csr_array(sparse), dense), sparse.toarray(), dense)


def test_columns_in_any_order_and_twice_are_put_right_without_touching_what_was_given():
    given_ = sp.csr_matrix(
        (np.array([1, 2, 4, 8, 16], np.float32), np.array([2, 0, 2, 1, 0]), np.array([0, 3, 5])), shape=(2, 3)
    )
    columns = given_.indices.copy()
    assert_holds(MixedRows.of(given_), np.array([[2, 0, 5], [16, 8, 0]]), np.zeros((2, 0)))
    assert given_.indices.tolist() == columns.tolist()


@settings(max_examples=100, deadline=None)
@given(st.integers(-8, 8) | st.none(), st.integers(-8, 8) | st.none())
def test_a_range_of_documents_is_that_range_of_both(low, high):
    sparse, dense = parts()
    here = slice(low, high)
    assert_holds(MixedRows.of(sparse, dense)[here], sparse.toarray()[here], dense[here])


def test_the_whole_range_is_no_copy():
    rows = MixedRows.of(*parts())
    assert rows[:] is rows
    assert rows[0:6] is rows
    assert rows[0:100] is rows
    assert rows[0:5] is not rows


def test_no_documents():
    assert_holds(MixedRows.of(sp.csr_matrix((0, 4)), np.zeros((0, 2))), np.zeros((0, 4)), np.zeros((0, 2)))


@pytest.mark.parametrize(
    ("dense", "shape"),
    [(np.ones((5, 2)), r"\(5, 2\)"), (np.ones(6), r"\(6,\)"), (np.ones((6, 2, 1)), r"\(6, 2, 1\)")],
)
def test_dense_rows_that_do_not_fit_are_refused(dense, shape):
    said = rf"dense features have the shape {shape} beside 6 sparse rows\. Remedy: give one row a document"
    with pytest.raises(DataError, match=said):
        MixedRows.of(parts()[0], dense)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e39])  # the last is infinite as float32
@pytest.mark.filterwarnings("error")
def test_dense_features_that_are_not_finite_are_refused(bad):
    sparse, dense = parts()
    dense = dense.astype(np.float64)
    dense[2, 1] = bad
    for features in [(sparse, dense), (dense,)]:
        with pytest.raises(
            DataError, match=r"dense features are not finite.*Remedy: remove NaN and infinity"
        ):
            MixedRows.of(*features)


def test_dense_features_twice_are_refused():
    sparse, dense = parts()
    for first in (dense, MixedRows.of(sparse, dense)):
        with pytest.raises(DataError, match=r"dense features are given twice.*Remedy: put them side by side"):
            MixedRows.of(first, dense)
