"""Learnt trees: shapes, balance, reproducibility, and whether they find what was planted."""

from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from xmcascade.errors import DataError, SettingError
from xmcascade.tree import TreeSettings, balanced_tree, build_tree, kmeans_tree, smooth

RUN = settings(max_examples=60, deadline=None)


def random_features(n_labels, n_features=40, seed=0, empty=0.0):
    rng = np.random.default_rng(seed)
    features = sp.random(n_labels, n_features, 0.15, format="lil", dtype=np.float32, rng=rng)
    features[rng.random(n_labels) < empty] = 0
    return features.tocsr()


def planted(n_clusters, each, seed=0, width=12):
    """Labels of a cluster share most of their features; returns features and each label's cluster."""
    rng = np.random.default_rng(seed)
    truth = rng.permutation(np.repeat(np.arange(n_clusters), each))
    features = np.zeros((len(truth), n_clusters * width), np.float32)
    for label, c in enumerate(truth):
        features[label, c * width : (c + 1) * width] = rng.random(width) + 1
    features += 0.05 * rng.random(features.shape).astype(np.float32)
    return sp.csr_matrix(features), truth


def labels_per_cluster(tree, level):
    bounds = tree.picked([level]).offsets[0]
    return [tree.order[low:high] for low, high in pairwise(bounds)]


def same(one, other):
    return one.sizes == other.sizes and all(
        (a == b).all() for a, b in zip(one.to_arrays().values(), other.to_arrays().values(), strict=True)
    )


@given(
    n_labels=st.integers(1, 300),
    max_leaf=st.integers(1, 40),
    arity=st.sampled_from([2, 4, 16]),
    empty=st.sampled_from([0.0, 0.3, 0.9, 1.0]),
    dense=st.booleans(),
)
@RUN
def test_balance(n_labels, max_leaf, arity, empty, dense):
    features = random_features(n_labels, seed=n_labels, empty=empty)
    tree = balanced_tree(features.toarray() if dense else features, arity=arity, max_leaf=max_leaf)
    leaves = 1
    while leaves * max_leaf < n_labels:
        leaves *= 2
    if leaves > n_labels:  # max_leaf 1
        leaves //= 2
    expected = tree.sizes[:-1]
    ratios = [size // above for size, above in zip(expected, [1, *expected], strict=False)]
    assert expected[-1:] == ([leaves] if leaves > 1 else [])
    assert all(1 < ratio <= arity for ratio in ratios)
    assert max(ratios, default=1) <= 2 * min(ratios, default=1)  # evenly spaced
    assert leaves == 1 or arity ** (len(expected) - 1) < leaves  # no more levels than needed
    assert tree.sizes == [*expected, n_labels]
    for level in range(len(expected)):
        sizes = [len(found) for found in labels_per_cluster(tree, level)]
        assert max(sizes) - min(sizes) <= 1
    if expected:
        assert max(sizes) <= max(max_leaf, 2)


SHAPES = {200: [], 300: [2], 4100: [32], 9000: [128], 25_600: [256], 25_700: [16, 512]}


def test_the_shape_follows_from_the_number_of_labels():
    for n_labels, sizes in SHAPES.items():
        features = sp.csr_matrix((n_labels, 3), dtype=np.float32)
        assert balanced_tree(features).sizes == [*sizes, n_labels]


def test_as_few_levels_as_the_arity_allows():
    assert balanced_tree(random_features(640), arity=16, max_leaf=10).sizes == [8, 64, 640]
    assert balanced_tree(random_features(640), arity=64, max_leaf=10).sizes == [64, 640]
    assert balanced_tree(random_features(640), arity=16, max_leaf=640).sizes == [640]
    assert balanced_tree(random_features(640), arity=16, max_leaf=639).sizes == [2, 640]


@pytest.mark.parametrize(
    ("n_labels", "levels", "expected"),
    [
        (300, (4, 16, 128), [4, 16, 128]),
        (300, (4, 64, 256, 1024), [4, 64, 128]),
        (256, (2, 128), [2, 128]),
        (5, (8, 64), [2]),
        (4, (2,), [2]),
        (3, (2,), []),
        (1, (2,), []),
    ],
)
def test_levels_by_number_of_clusters(n_labels, levels, expected):
    assert balanced_tree(random_features(n_labels), levels=levels).sizes == [*expected, n_labels]


def test_a_level_does_not_depend_on_which_others_are_kept():
    features = random_features(300)
    all_levels = balanced_tree(features, levels=(2, 4, 8, 16, 32))
    assert same(all_levels.picked([1, 4]), balanced_tree(features, levels=(4, 32)))


BUILDERS = [
    TreeSettings(max_leaf=5, arity=4),
    TreeSettings(kind="kmeans", arity=7, depth=3, max_leaf=5),
]


@pytest.mark.parametrize("built", BUILDERS, ids=["balanced", "kmeans"])
@pytest.mark.parametrize("dense", [False, True])
def test_the_same_tree_for_any_number_of_threads(built, dense, monkeypatch):
    monkeypatch.setattr("xmcascade.tree.build.ROWS_AT_ONCE", 64)
    features = random_features(700, empty=0.1)
    features = features.toarray() if dense else features
    trees = [build_tree(built, features, seed=3, threads=threads) for threads in (1, 2, 4)]
    assert same(trees[0], trees[1])
    assert same(trees[0], trees[2])
    assert not same(trees[0], build_tree(built, features, seed=4))


@pytest.mark.parametrize("built", BUILDERS, ids=["balanced", "kmeans"])
def test_features_are_not_changed_and_their_lengths_do_not_count(built):
    features = random_features(200)
    before = features.copy()
    tree = build_tree(built, features)
    assert (features != before).nnz == 0
    scaled = sp.diags(np.linspace(1, 8, 200).round().astype(np.float32)) @ features
    bounds = [
        set(map(tuple, map(sorted, labels_per_cluster(t, 0))))
        for t in (tree, build_tree(built, features * 4))
    ]
    assert bounds[0] == bounds[1]
    assert build_tree(built, scaled).n_labels == 200


@given(seed=st.integers(0, 100))
@settings(max_examples=15, deadline=None)
def test_planted_clusters_are_found(seed):
    features, truth = planted(2, 30, seed)
    for found in labels_per_cluster(balanced_tree(features, levels=(2,), seed=seed), 0):
        assert len(set(truth[found])) == 1
    features, truth = planted(6, [3, 10, 20, 5, 40, 8], seed)
    tree = kmeans_tree(features, arity=6, depth=1, max_leaf=2, seed=seed)
    pure = sum(len(set(truth[found])) == 1 for found in labels_per_cluster(tree, 0))
    assert pure >= 4


def test_more_iterations_are_closer():
    features, _ = planted(8, 16)

    def closeness(tree):
        leaves = labels_per_cluster(tree, tree.n_levels - 2)
        return sum(np.linalg.norm(np.asarray(features[found].sum(axis=0))) for found in leaves)

    assert closeness(balanced_tree(features, max_leaf=16)) > closeness(
        balanced_tree(features, max_leaf=16, max_iterations=0)
    )


def test_labels_of_which_nothing_is_known_are_dealt_evenly():
    features, truth = planted(2, 8)
    features = sp.vstack([features, sp.csr_matrix((8, features.shape[1]), dtype=np.float32)], format="csr")
    for tree in (balanced_tree(features, levels=(2,)), kmeans_tree(features, arity=2, depth=1, max_leaf=9)):
        for found in labels_per_cluster(tree, 0):
            assert (found >= 16).sum() == 4
            assert len(set(truth[found[found < 16]])) == 1


@given(
    n_labels=st.integers(1, 200),
    arity=st.integers(2, 30),
    depth=st.integers(1, 3),
    max_leaf=st.integers(1, 30),
    empty=st.sampled_from([0.0, 0.3, 0.95, 1.0]),
)
@RUN
def test_kmeans_of_any_size(n_labels, arity, depth, max_leaf, empty):
    features = random_features(n_labels, seed=n_labels, empty=empty)
    tree = kmeans_tree(features, arity=arity, depth=depth, max_leaf=max_leaf)
    known = features.getnnz(axis=1) > 0
    assert tree.n_labels == n_labels
    if n_labels <= max_leaf:
        assert tree.sizes == [n_labels]
    if not known.any():
        return
    assert tree.n_levels <= depth + 1
    for level in range(tree.n_levels - 1):
        assert (np.diff(tree.offsets[level]) <= arity).all() or level == tree.n_levels - 2
        for c, found in enumerate(labels_per_cluster(tree, level)):
            if level < tree.n_levels - 2 and known[found].sum() <= max_leaf:
                assert len(tree.children(level, c)) == 1  # not divided further


def test_equal_labels():
    features = sp.csr_matrix(np.ones((50, 3), np.float32))
    assert balanced_tree(features, max_leaf=10).sizes == [8, 50]
    assert kmeans_tree(features, arity=4, max_leaf=10).sizes == [50]


@pytest.mark.parametrize(
    "values",
    [
        {"arity": 3},
        {"arity": 1},
        {"arity": 1, "kind": "kmeans"},
        {"max_leaf": 0},
        {"levels": ()},
        {"levels": (3,)},
        {"levels": (8, 4)},
        {"levels": (1, 4)},
        {"levels": (4,), "kind": "kmeans"},
        {"depth": 0},
        {"max_iterations": -1},
        {"kind": "random"},
    ],
)
def test_settings_out_of_range(values):
    with pytest.raises(SettingError, match=f"{next(iter(values))} is "):
        TreeSettings(**values)


def test_settings_go_to_json_and_back():
    made = TreeSettings(levels=(4, 16))
    assert TreeSettings.from_dict(made.to_dict()) == made


@pytest.mark.parametrize("seed", [-1, 1.5, True])
def test_seeds_out_of_range(seed):
    with pytest.raises(SettingError, match="seed is"):
        balanced_tree(random_features(30), max_leaf=3, seed=seed)


def test_large_seeds():
    assert balanced_tree(random_features(30), max_leaf=3, seed=2**70 + 1).n_labels == 30


@pytest.mark.parametrize("build", [balanced_tree, kmeans_tree])
@pytest.mark.parametrize("dense", [False, True])
def test_features_that_are_refused(build, dense):
    features = random_features(30)
    features.data[features.indptr[7]] = np.nan
    with pytest.raises(DataError, match="label 7 are not finite"):
        build(features.toarray() if dense else features)
    with pytest.raises(DataError, match=r"shape \(0, 3\)"):
        build(np.zeros((0, 3)) if dense else sp.csr_matrix((0, 3)))


def smoothed_slowly(features, labels, neighbours):
    together = (labels != 0).T.astype(float) @ (labels != 0)
    mixed = np.zeros_like(features)
    for label, counts in enumerate(together):
        others = sorted((i for i in np.flatnonzero(counts) if i != label), key=lambda i: (-counts[i], i))
        kept = [label, *others[:neighbours]]
        weights = counts[kept] if counts[label] else np.ones(1)
        mixed[label] = weights @ features[kept] / weights.sum()
    lengths = np.linalg.norm(mixed, axis=1, keepdims=True)
    return np.divide(mixed, lengths, out=np.zeros_like(mixed), where=lengths > 0)


@given(
    n_labels=st.integers(1, 12),
    n_docs=st.integers(1, 15),
    neighbours=st.integers(0, 4),
    seed=st.integers(0, 99),
)
@RUN
def test_smoothing(n_labels, n_docs, neighbours, seed):
    rng = np.random.default_rng(seed)
    features = np.where(rng.random((n_labels, 6)) < 0.4, rng.random((n_labels, 6)), 0)
    labels = np.where(rng.random((n_docs, n_labels)) < 0.3, 0.5, 0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("xmcascade.tree.build.ROWS_AT_ONCE", 5)
        found = smooth(sp.csr_matrix(features), sp.csr_matrix(labels), neighbours=neighbours)
    assert sp.issparse(found)
    assert found.has_sorted_indices
    np.testing.assert_allclose(found.toarray(), smoothed_slowly(features, labels, neighbours), atol=1e-6)


def test_smoothing_refuses():
    with pytest.raises(DataError, match="3 rows of label features for 2 labels"):
        smooth(sp.eye(3), sp.eye(2))
    with pytest.raises(SettingError, match="neighbours is -1"):
        smooth(sp.eye(2), sp.eye(2), neighbours=-1)
