import math

import numpy as np
import pytest
import scipy.sparse as sp

from xmcascade.errors import DataError, SettingError
from xmcascade.evaluate import PROPENSITIES, Propensity, PropensityScored, judge

# The case of test_metrics.py, with these inverse propensities of labels 0..4.
TRUTH = sp.csr_matrix([[1, 0, 1, 0, 1], [0, 1, 0, 0, 0], [0, 0, 0, 0, 0], [1, 0, 0, 1, 0]])
LABELS = np.array([[2, 1, 0], [0, 1, -1], [0, 1, 2], [4, 2, 1]])
INVERSE = np.array([1.0, 2.0, 4.0, 8.0, 3.0])
SCORED = PropensityScored(judge(TRUTH, LABELS), INVERSE, k_max=5)
D2 = 0.6309297535714575
# gains of the ranks, and at best: document 0: 4 0 1, 4 3 1; document 1: 0 2 -, 2; document 3: 0 0 0, 8 1


@pytest.mark.parametrize(
    ("k", "normalisation", "expected"),
    [
        (1, "repository", 4 / (4 + 2 + 8)),
        (3, "repository", (5 + 2) / (8 + 2 + 9)),
        (5, "repository", (5 + 2) / (8 + 2 + 9)),
        (1, "document", (4 / 4 + 0 / 2 + 0 / 8) / 3),
        (3, "document", (5 / 8 + 2 / 2 + 0 / 9) / 3),
        (3, "none", (5 / 3 + 2 / 3 + 0) / 3),
        (5, "none", (5 / 5 + 2 / 5 + 0) / 3),
    ],
)
def test_psp_by_hand(k, normalisation, expected):
    assert SCORED.precision(k, normalisation).value == pytest.approx(expected, abs=1e-15)


@pytest.mark.parametrize(
    ("k", "normalisation", "expected"),
    [
        (1, "repository", 4 / (4 + 2 + 8)),
        # gains: 4.5 / (1 + D2 + 0.5), 2 D2 / 1, 0
        # bests: (4 + 3 D2 + 0.5) / (1 + D2 + 0.5), 2 / 1, (8 + D2) / (1 + D2)
        # = (2.1117542671 + 1.2618595071) / (3.0000000000 + 2 + 5.2920296743)
        (
            3,
            "repository",
            (4.5 / (1.5 + D2) + 2 * D2) / ((4.5 + 3 * D2) / (1.5 + D2) + 2 + (8 + D2) / (1 + D2)),
        ),
        (3, "document", (4.5 / (4.5 + 3 * D2) + D2 + 0) / 3),
        (3, "none", (4.5 / (1.5 + D2) + 2 * D2 + 0) / 3),
    ],
)
def test_psndcg_by_hand(k, normalisation, expected):
    assert SCORED.ndcg(k, normalisation).value == pytest.approx(expected, abs=1e-15)


def test_equal_propensities_give_r_precision_weighted_by_document():
    # with all inverse propensities 1, "repository" PSP@3 is hits / possible hits = 3 / (3 + 1 + 2)
    scored = PropensityScored(judge(TRUTH, LABELS), np.ones(5), k_max=3)
    assert scored.precision(3).value == 3 / 6


def test_a_label_with_one_document_has_inverse_propensity_ln_n():
    # 1 + (ln N - 1)(b + 1)^a (1 + b)^-a = ln N, whatever a and b
    for propensity in (*PROPENSITIES.values(), Propensity(0.9, 7.0)):
        assert propensity.inverse([1], 1000)[0] == pytest.approx(math.log(1000), abs=1e-12)


def test_inverse_propensity_by_hand():
    # C = (ln 10000 - 1) 1.4^0.5 = 8.210340371976182 * 1.183215956619923; N_l = 8.6: (8.6 + 0.4)^-0.5 = 1/3
    expected = 1 + 8.210340371976182 * 1.183215956619923 / 3
    assert Propensity.named("wikipedia").inverse(np.array([8.6]), 10_000)[0] == pytest.approx(
        expected, abs=1e-12
    )


def test_rarer_labels_count_more_and_none_less_than_one():
    inverse = Propensity().inverse(np.arange(500), 500)
    assert (np.diff(inverse) < 0).all()
    for n in (1, 2, 3, 10**7):
        assert (Propensity().inverse([0, 1], n) >= 1).all()
    assert Propensity().inverse([0, 1, 2], 2).tolist() == [1, 1, 1], "ln 2 - 1 is negative; C is 0 instead"


def test_the_presets():
    assert {name: (p.a, p.b) for name, p in PROPENSITIES.items()} == {
        "default": (0.55, 1.5),
        "wikipedia": (0.5, 0.4),
        "amazon": (0.6, 2.6),
    }
    assert Propensity() == Propensity.named("default")
    with pytest.raises(SettingError, match=r"'wiki'.*default, wikipedia, amazon"):
        Propensity.named("wiki")


@pytest.mark.parametrize(("a", "b"), [(-0.1, 1.5), (0.5, 0.0), (math.nan, 1.0), (0.5, math.inf)])
def test_settings_outside_their_range_are_refused(a, b):
    with pytest.raises(SettingError, match="propensity setting"):
        Propensity(a, b)


def test_with_a_zero_every_label_counts_the_same():
    # C = (ln N - 1) 1, so the inverse propensity is ln N for every label
    assert Propensity(0.0, 1.0).inverse([0, 5], 100).tolist() == pytest.approx([math.log(100)] * 2)


def test_wrong_counts_are_refused():
    for counts in ([-1, 2], [3, 11], [math.nan]):
        with pytest.raises(DataError, match=r"outside 0\.\.10"):
            Propensity().inverse(counts, 10)
    with pytest.raises(DataError, match="one number for each label"):
        Propensity().inverse([[1]], 10)
    with pytest.raises(SettingError, match="n_train_docs is 0"):
        Propensity().inverse([0], 0)


def test_wrong_use_is_refused():
    judged = judge(TRUTH, LABELS)
    with pytest.raises(DataError, match="4 inverse propensities for 5 labels"):
        PropensityScored(judged, np.ones(4), 3)
    with pytest.raises(SettingError, match=r"k is 6\. Remedy: use 1\.\.5"):
        SCORED.precision(6)
    with pytest.raises(SettingError, match="normalisation is 'repo'"):
        SCORED.ndcg(1, "repo")
