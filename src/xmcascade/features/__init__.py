"""Texts become rows here, and labels become the rows a tree is built from."""

from xmcascade.features.labels import LabelFeatures, label_features, normalise_rows
from xmcascade.features.mixed import MixedRows
from xmcascade.features.tfidf import Tfidf, TfidfSettings

__all__ = ["LabelFeatures", "MixedRows", "Tfidf", "TfidfSettings", "label_features", "normalise_rows"]
