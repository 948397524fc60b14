"""Extreme multi-label text classification: raw text in, labels out."""
from xmcascade.version import __version__
