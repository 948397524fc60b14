"""Texts become tokens here, and tokens become features, by a pre-trained encoder (extra `neural`)."""

from xmcascade.neural.encoder import Encoder, Pooling
from xmcascade.neural.tokens import TokenStore, batches, padded

__all__ = ["Encoder", "Pooling", "TokenStore", "batches", "padded"]
