"""One number to choose by, wherever something is chosen on held-out documents."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from xmcascade.evaluate.metrics import ndcg
from xmcascade.evaluate.propensity import PropensityScored
from xmcascade.evaluate.ranking import Judged

__all__ = ["WORTH", "worth"]

WORTH = "mean of nDCG@1, nDCG@5, PSnDCG@1 and PSnDCG@5"


def worth(judged: Judged, inverse: npt.NDArray[np.float64]) -> float:
    """How good rankings are: their first label and first five, plainly and with rare labels counting more.

    inverse: the labels' inverse propensities (`Propensity.inverse`).

    >>> import scipy.sparse as sp
    >>> from xmcascade.evaluate import judge
    >>> worth(judge(sp.csr_matrix([[1, 1, 0]]), [[1, 0]]), np.array([1.0, 3.0, 2.0]))
    1.0
    """
    k = judged.labels.shape[1]
    scored = PropensityScored(judged, inverse, k)
    plain = sum(float(ndcg(judged, at).mean()) for at in (1, k))
    return (plain + sum(scored.ndcg(at).value for at in (1, k))) / 4
