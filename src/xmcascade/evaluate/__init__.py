"""How good a ranking of labels is: metrics, how sure they are, and where it is good or bad."""

from xmcascade.evaluate.calibration import Reliability, reliability
from xmcascade.evaluate.metrics import coverage, f1, ndcg, precision, r_precision, recall
from xmcascade.evaluate.propensity import (
    NORMALISATIONS,
    PROPENSITIES,
    PerDocument,
    Propensity,
    PropensityScored,
)
from xmcascade.evaluate.ranking import Judged, Ranking, hits, judge
from xmcascade.evaluate.report import Difference, Evaluation, compare_rankings, evaluate_ranking
from xmcascade.evaluate.resampling import bootstrap, holm, sign_flip_p_values
from xmcascade.evaluate.slices import SLICES, slice_of_labels, slice_recalls
from xmcascade.evaluate.worth import WORTH, worth

__all__ = [
    "NORMALISATIONS",
    "PROPENSITIES",
    "SLICES",
    "WORTH",
    "Difference",
    "Evaluation",
    "Judged",
    "PerDocument",
    "Propensity",
    "PropensityScored",
    "Ranking",
    "Reliability",
    "bootstrap",
    "compare_rankings",
    "coverage",
    "evaluate_ranking",
    "f1",
    "hits",
    "holm",
    "judge",
    "ndcg",
    "precision",
    "r_precision",
    "recall",
    "reliability",
    "sign_flip_p_values",
    "slice_of_labels",
    "slice_recalls",
    "worth",
]
