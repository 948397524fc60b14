"""Pictures and pages for people: comparisons of methods, and what a model has learnt."""

from xmcascade.report.compare import compare
from xmcascade.report.comparison import Comparison, Row, Tested
from xmcascade.report.explain import Explanation, explain
from xmcascade.report.inspect import Inspection, inspect_model, inspected
from xmcascade.report.page import Markup, Number, Page, Picture, Table
from xmcascade.report.peers import PEERS, Peer
from xmcascade.report.plots import figure, picture, save_figure

__all__ = [
    "PEERS",
    "Comparison",
    "Explanation",
    "Inspection",
    "Markup",
    "Number",
    "Page",
    "Peer",
    "Picture",
    "Row",
    "Table",
    "Tested",
    "compare",
    "explain",
    "figure",
    "inspect_model",
    "inspected",
    "picture",
    "save_figure",
]
