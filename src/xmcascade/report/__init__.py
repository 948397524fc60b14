"""Pictures and pages for people: comparisons of methods, and what a model has learnt."""

from xmcascade.report.explain import Explanation, explain
from xmcascade.report.inspect import Inspection, inspect_model, inspected
from xmcascade.report.page import Markup, Page, Picture, Table
from xmcascade.report.plots import figure, picture, save_figure

__all__ = [
    "Explanation",
    "Inspection",
    "Markup",
    "Page",
    "Picture",
    "Table",
    "explain",
    "figure",
    "inspect_model",
    "inspected",
    "picture",
    "save_figure",
]
