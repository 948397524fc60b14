import json

import numpy as np
import pytest
import scipy.sparse as sp

from xmcascade.errors import DataError, SettingError
from xmcascade.evaluate import Propensity, Ranking, compare_rankings, evaluate_ranking


def corpus(n_docs, n_labels, seed=0, wrong=0.4):
    """Two true labels for each document; a ranking of four labels in which some are wrong."""
    rng = np.random.default_rng(seed)
    first = rng.integers(0, n_labels, (n_docs, 1))
    labels = (first + np.arange(4) * (n_labels // 4)) % n_labels
    truth = sp.csr_matrix(
        (np.ones(2 * n_docs), (np.repeat(np.arange(n_docs), 2), labels[:, :2].ravel())),
        shape=(n_docs, n_labels),
    )
    return truth, shuffled(labels, rng, wrong)


def shuffled(labels, rng, wrong):
    """The ranking in which a share of the documents has its four labels in the wrong order."""
    labels = np.where(rng.random((len(labels), 1)) < wrong, labels[:, ::-1], labels)
    return Ranking(labels, -np.tile(np.arange(4.0), (len(labels), 1)), rng.random(labels.shape))


TRUTH = sp.csr_matrix([[1, 0, 1, 0, 1], [0, 1, 0, 0, 0], [0, 0, 0, 0, 0], [1, 0, 0, 1, 0]])
RANKING = Ranking(
    [[2, 1, 0], [0, 1, -1], [0, 1, 2], [4, 2, 1]],
    np.zeros((4, 3)),
    [[0.9, 0.6, 0.5], [0.8, 0.4, 1.0], [0.99, 0.9, 0.9], [0.5, 0.1, 0.1]],
)
OPTIONS = {"label_counts": [2, 2, 1, 0, 1], "n_train_docs": 4}


def test_all_names_in_percent():
    evaluation = evaluate_ranking(TRUTH, RANKING, **OPTIONS)
    at_k = ["P", "R", "RP", "nDCG", "PSP", "PSnDCG", "coverage"]
    assert list(evaluation.metrics) == [f"{name}@{k}" for name in at_k for k in (1, 3, 5)] + [
        "micro-F1",
        "macro-F1",
        "ECE@5",
    ]
    # worked by hand in test_metrics.py
    for name, value in {
        "P@1": 1 / 3,
        "P@3": (2 / 3 + 1 / 3) / 3,
        "P@5": (2 / 5 + 1 / 5) / 3,
        "R@3": (2 / 3 + 1) / 3,
        "RP@5": (2 / 3 + 1) / 3,
        "coverage@3": 3 / 5,
        "micro-F1": 4 / 11,
        "macro-F1": 1.5 / 5,
    }.items():
        assert evaluation.metrics[name] == pytest.approx(100 * value)
    assert (evaluation.n_docs, evaluation.n_unlabelled) == (3, 1)


def test_intervals_for_sums_over_documents_only_and_around_the_value():
    truth, ranking = corpus(500, 40)
    evaluation = evaluate_ranking(truth, ranking, label_counts=np.full(40, 9), n_train_docs=500)
    without = {
        name for name in evaluation.metrics if name.startswith(("coverage", "ECE")) or name.endswith("F1")
    }
    assert evaluation.intervals.keys() == evaluation.metrics.keys() - without
    for name, (low, high) in evaluation.intervals.items():
        assert low - 1e-9 <= evaluation.metrics[name] <= high + 1e-9
    # P@1 is a share of 500 documents: the standard error is sqrt(p (1 - p) / 500)
    p = evaluation.metrics["P@1"] / 100
    low, high = evaluation.intervals["P@1"]
    assert high - low == pytest.approx(100 * 2 * 1.96 * (p * (1 - p) / 500) ** 0.5, rel=0.12)


def test_the_same_seed_gives_the_same_answer_and_another_one_another_interval():
    truth, ranking = corpus(300, 40)
    first, again, other = (evaluate_ranking(truth, ranking, seed=seed, replicates=200) for seed in (3, 3, 4))
    assert first == again
    assert first.metrics == other.metrics
    assert first.intervals != other.intervals


def test_without_label_counts_there_is_no_propensity_and_no_slice():
    evaluation = evaluate_ranking(TRUTH, RANKING, replicates=0)
    assert not any(name.startswith("PS") for name in evaluation.metrics)
    assert (evaluation.slices, evaluation.intervals) == ({}, {})


def test_labels_never_seen_in_training_count_as_missed_and_are_reported():
    # true occurrences: 0 twice, 1, 2, 3 and 4 once; with 3 known labels 3 and 4 are unseen
    evaluation = evaluate_ranking(TRUTH, RANKING, n_known_labels=3, replicates=0)
    assert evaluation.unseen_share == pytest.approx(100 * 2 / 6)
    assert evaluation.metrics == evaluate_ranking(TRUTH, RANKING, replicates=0).metrics
    assert evaluate_ranking(TRUTH, RANKING, replicates=0).unseen_share == 0


def test_slices_use_the_largest_k():
    # counts 2 2 1 0 1: the line of six is 0 0 1 1 2 4, so head is 0, torso 1, tail 2 4 3
    slices = evaluate_ranking(TRUTH, RANKING, ks=(3, 1), replicates=0, **OPTIONS).slices
    assert slices["head"] == {"labels": 1, "share": pytest.approx(100 * 2 / 6), "R@3": 50}
    assert slices["torso"] == {"labels": 1, "share": pytest.approx(100 / 6), "R@3": 100}
    assert slices["tail"] == {"labels": 3, "share": 50, "R@3": pytest.approx(100 / 3)}


def test_to_dict_is_plain_json():
    evaluation = evaluate_ranking(TRUTH, RANKING, replicates=10, label_counts=[4, 0, 0, 0, 0], n_train_docs=4)
    plain = evaluation.to_dict()
    assert json.loads(json.dumps(plain, allow_nan=False)) == plain
    assert plain["P@1"] == evaluation.metrics["P@1"]
    assert plain["intervals"]["P@1"] == list(evaluation.intervals["P@1"])
    assert plain["slices"]["torso"] == {"labels": 0, "share": 0, "R@5": None}
    assert (plain["n_docs"], plain["n_unlabelled"], plain["unseen_share"]) == (3, 1, 0)
    assert "metrics" not in plain


def test_propensity_by_name_or_by_value_and_normalisation():
    named = evaluate_ranking(TRUTH, RANKING, propensity="amazon", replicates=0, **OPTIONS)
    given = evaluate_ranking(TRUTH, RANKING, propensity=Propensity(0.6, 2.6), replicates=0, **OPTIONS)
    assert named == given
    values = {
        evaluate_ranking(TRUTH, RANKING, normalisation=n, replicates=0, **OPTIONS).metrics["PSP@3"]
        for n in ("repository", "document", "none")
    }
    assert len(values) == 3


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"ks": ()}, SettingError, "ks is empty"),
        ({"ks": (0, 1)}, SettingError, "k is 0"),
        ({"threshold": 50}, SettingError, "threshold is 50"),
        ({"replicates": -1}, SettingError, "replicates is -1"),
        ({"seed": -1}, SettingError, "seed is -1"),
        ({"label_counts": [1] * 5}, SettingError, "label_counts without n_train_docs"),
        ({"label_counts": [1] * 4, "n_train_docs": 4}, DataError, "4 .* for 5 labels"),
        ({"propensity": "x", **OPTIONS}, SettingError, "propensity is 'x'"),
        ({"normalisation": "x", **OPTIONS}, SettingError, "normalisation is 'x'"),
    ],
)
def test_wrong_options_are_refused(options, error, message):
    with pytest.raises(error, match=message):
        evaluate_ranking(TRUTH, RANKING, **options)


def test_the_order_and_repetition_of_ks_do_not_matter():
    assert evaluate_ranking(TRUTH, RANKING, ks=(5, 1, 3, 1)) == evaluate_ranking(TRUTH, RANKING)


def test_150_000_documents_with_1000_replicates():
    truth, ranking = corpus(150_000, 600_000)
    counts = np.random.default_rng(0).integers(0, 100, 600_000)
    evaluation = evaluate_ranking(truth, ranking, label_counts=counts, n_train_docs=500_000)
    low, high = evaluation.intervals["P@1"]
    assert low < 60 < high
    assert high - low < 1


def test_comparing_a_ranking_with_itself_finds_nothing():
    truth, ranking = corpus(100, 40)
    for difference in compare_rankings(truth, ranking, ranking, replicates=50).values():
        assert (difference.difference, difference.low, difference.high, difference.p_value) == (0, 0, 0, 1)
        assert not difference.significant


def test_a_better_ranking_is_significantly_better_and_the_sides_are_symmetric():
    truth, worse = corpus(400, 40, wrong=0.5)
    better = corpus(400, 40, wrong=0.2)[1]
    options = {"label_counts": np.arange(40), "n_train_docs": 400, "replicates": 300}
    forth = compare_rankings(truth, better, worse, **options)
    back = compare_rankings(truth, worse, better, **options)
    own = evaluate_ranking(truth, better, **options)
    assert forth.keys() == own.intervals.keys()
    for name in ("P@1", "P@3", "nDCG@5", "PSP@1", "PSP@3", "PSnDCG@5"):
        found = forth[name]
        assert found.first == own.metrics[name]
        assert found.difference == pytest.approx(found.first - found.second)
        assert found.low <= found.difference <= found.high
        assert found.significant
        assert found.p_value < 0.01
        assert back[name].difference == pytest.approx(-found.difference)
        assert (back[name].low, back[name].high) == pytest.approx((-found.high, -found.low))
        assert back[name].p_value == found.p_value


def test_a_difference_in_every_document_has_an_interval_without_width():
    truth, right = corpus(60, 40, wrong=0.0)
    wrong = corpus(60, 40, wrong=1.0)[1]
    found = compare_rankings(truth, right, wrong, replicates=99)["P@1"]
    assert (found.first, found.second, found.difference) == (100, 0, 100)
    assert (found.low, found.high, found.p_value) == (100, 100, 1 / 100)


def test_pairing_narrows_the_interval_of_a_difference():
    truth, ranking = corpus(1000, 40)
    labels = ranking.labels.copy()
    labels[:20] = labels[:20, ::-1]  # the two differ in at most 20 documents
    other = Ranking(labels, ranking.scores, ranking.probabilities)
    difference = compare_rankings(truth, ranking, other, replicates=300)["P@1"]
    low, high = evaluate_ranking(truth, ranking, replicates=300).intervals["P@1"]
    assert difference.high - difference.low < (high - low) / 2


def test_equally_good_rankings_are_rarely_told_apart():
    found = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        truth, first = corpus(120, 40, seed=seed, wrong=0.0)
        one, two = (shuffled(first.labels, rng, 0.4) for _ in range(2))
        found += compare_rankings(truth, one, two, ks=[1], replicates=200)["P@1"].significant
    assert found <= 9  # 3 expected


def test_both_rankings_must_fit_the_truth():
    with pytest.raises(DataError, match="for 4 documents"):
        compare_rankings(TRUTH, RANKING, corpus(3, 4)[1])
    with pytest.raises(SettingError, match="replicates is 0"):
        compare_rankings(TRUTH, RANKING, RANKING, replicates=0)
