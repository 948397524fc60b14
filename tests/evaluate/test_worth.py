"""The number to choose by is the mean of what evaluations tell."""

import numpy as np
import pytest

from xmcascade import XRLinear, make_synthetic
from xmcascade.evaluate import Propensity, judge, worth


@pytest.mark.parametrize("k", [1, 3, 5])
def test_it_is_the_mean_of_four_metrics(k):
    corpus = make_synthetic(400, 30, seed=1)
    train, other = corpus.take(np.arange(300)), corpus.take(np.arange(300, 400))
    model = XRLinear(calibrate=False).fit(train)
    told = model.evaluate(other, ks=(1, k) if k > 1 else (1,)).metrics
    mean = sum(told[name] for name in ("nDCG@1", f"nDCG@{k}", "PSnDCG@1", f"PSnDCG@{k}")) / 4
    inverse = Propensity().inverse(train.label_counts(), train.n_docs)
    assert 100 * worth(judge(other.labels, model.rank(other, k=k).labels), inverse) == pytest.approx(mean)
