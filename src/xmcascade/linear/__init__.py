"""Linear rows of weights, solved block by block, and the search through them."""

from xmcascade.linear.beam import Combine, node_probability, probability, score_labels, score_paths, search
from xmcascade.linear.machine import BlockWeights, LinearSettings, train_level

__all__ = [
    "BlockWeights",
    "Combine",
    "LinearSettings",
    "node_probability",
    "probability",
    "score_labels",
    "score_paths",
    "search",
    "train_level",
]
