"""What a fitted model needs to read texts with its encoder, in memory and in a model folder."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from xmcascade.kernels.parallel import thread_count
from xmcascade.models.base import Packed
from xmcascade.neural import Encoder, Pooling, Reader, TokenStore, cutting, torch_threads
from xmcascade.store import Strings, within

__all__ = ["TextReader"]


@dataclass(frozen=True, eq=False)
class TextReader:
    """An encoder, the layers that are read of it, and a tokenizer that cuts."""

    reader: Reader
    tokenizer: Any
    max_tokens: int

    def read(self, texts: Strings, threads: int | None) -> list[npt.NDArray[np.float32]]:
        """Features of texts, for each level."""
        tokens = TokenStore.of(texts, self.tokenizer, self.max_tokens)
        with torch_threads(thread_count(threads)):
            return self.reader.encode(tokens)

    def pack(self) -> Packed:
        """To store."""
        weights, tokenizer, config = self.reader.encoder.state()
        values = {"encoder": config, "reads": self.reader.reads, "max_tokens": self.max_tokens}
        arrays = {f"encoder.{name}": array for name, array in weights.items()}
        return Packed(arrays, {"tokenizer": Strings.of([tokenizer])}, values)

    @classmethod
    def unpack(cls, packed: Packed, pooling: Pooling) -> Self:
        """The opposite; raises when the parts do not fit."""
        values, weights = packed.values, within(packed.arrays, "encoder.")
        encoder = Encoder.restore(weights, packed.strings["tokenizer"][0], values["encoder"])
        reader = Reader(encoder, tuple(map(tuple, values["reads"])), pooling)
        if not all(0 <= k <= encoder.n_layers for layers in reader.reads for k in layers):
            raise ValueError(f"levels read the layers {reader.reads} of {encoder.n_layers}")
        max_tokens = min(int(values["max_tokens"]), encoder.max_tokens)
        return cls(reader, cutting(encoder.tokenizer, max_tokens), max_tokens)
