"""Pictures and pages for people: comparisons of methods, and what a model has learnt."""

from xmcascade.report.page import Markup, Page, Picture, Table
from xmcascade.report.plots import figure, picture, save_figure

__all__ = ["Markup", "Page", "Picture", "Table", "figure", "picture", "save_figure"]
