"""Texts become sparse rows here, and labels become the rows a tree is built from."""

from xmcascade.features.labels import LabelFeatures, label_features, normalise_rows
from xmcascade.features.tfidf import Tfidf, TfidfSettings

__all__ = ["LabelFeatures", "Tfidf", "TfidfSettings", "label_features", "normalise_rows"]
