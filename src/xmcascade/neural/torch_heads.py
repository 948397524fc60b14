"""The same head in plain torch operations, for devices that the kernels cannot reach."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from xmcascade.neural.extra import torch
from xmcascade.neural.heads import BETA1, BETA2, EPSILON, Floats, Head, Shortlist

__all__ = ["TorchHead"]

ENTRIES_AT_ONCE = 1 << 18


@dataclass(eq=False)
class TorchHead(Head):
    """A head whose rows live on a torch device; arrays go in and out as with `Head`.

    >>> head = TorchHead.random(4, 2, np.random.default_rng(0), optimizer="sgd", device="cpu")
    >>> head.logits(np.ones((1, 2), np.float32), Shortlist.root(1, 4)).shape
    (4,)
    """

    device: str = "cuda"

    def __post_init__(self) -> None:
        super().__post_init__()
        kinds = {np.dtype(np.uint16): torch().bfloat16}
        rows = torch().from_numpy(self.rows.view(np.int16) if self.rows.dtype == np.uint16 else self.rows)
        self._rows = rows.view(kinds.get(self.rows.dtype, torch().float32)).to(self.device, copy=True)
        self._biases = torch().from_numpy(self.biases).to(self.device, copy=True)
        self._state = [torch().from_numpy(part).to(self.device, copy=True) for part in self.state]

    def logits(self, x: Floats, short: Shortlist) -> Floats:
        """The scores of the entries."""
        own = self._on(x)
        parts = [
            (own[docs] * self._rows[ids].float()).sum(1) + self._biases[ids]
            for docs, ids, _ in self._parts(short, np.zeros(short.n_entries, np.float32))
        ]
        found: Floats = torch().cat(parts).cpu().numpy() if parts else np.zeros(0, np.float32)
        return found

    def step(
        self, x: Floats, short: Shortlist, slopes: Floats, rate: float, seed: int = 0, hold: bool = False
    ) -> Floats:
        """As `Head.step`."""
        own = self._on(x)
        back = torch().zeros_like(own)
        touched, place = torch().unique(self._on(short.rows), return_inverse=True)
        gradients = torch().zeros(len(touched), own.shape[1] + 1, device=self.device)  # the bias is the last
        at = 0
        for docs, ids, slope in self._parts(short, slopes):
            here = place[at : at + len(ids)]
            at += len(ids)
            back.index_add_(0, docs, slope[:, None] * self._rows[ids].float())
            gradients[:, :-1].index_add_(0, here, slope[:, None] * own[docs])
            gradients[:, -1].index_add_(0, here, slope)
        if not hold:
            self._update(touched, gradients, rate, seed)
        found: Floats = back.cpu().numpy()
        return found

    def _parts(self, short: Shortlist, slopes: Floats) -> Any:
        """Documents, rows and slopes of the entries, some at a time."""
        docs = np.repeat(short.docs, np.diff(short.starts))
        for low in range(0, short.n_entries, ENTRIES_AT_ONCE):
            part = slice(low, low + ENTRIES_AT_ONCE)
            yield self._on(docs[part]), self._on(short.rows[part]), self._on(slopes[part])

    def _update(self, touched: Any, gradients: Any, rate: float, seed: int) -> None:
        squares, steps, firsts, seconds = self._state
        if self.optimizer == "adam":
            steps[touched] += 1
            n = steps[touched].double()[:, None]
            firsts[touched] = BETA1 * firsts[touched] + (1 - BETA1) * gradients
            seconds[touched] = BETA2 * seconds[touched] + (1 - BETA2) * gradients**2
            mean, square = firsts[touched] / (1 - BETA1**n), seconds[touched] / (1 - BETA2**n)
            move = (rate * mean / (square.sqrt() + EPSILON)).float()
        elif self.optimizer == "sgd":
            move = rate * gradients
        else:
            square, before = (gradients**2).mean(1), squares[touched]
            if self.optimizer == "adagrad":
                squares[touched] = before + square
            else:  # a row's first gradient is its whole history
                squares[touched] = torch().where(before > 0, BETA2 * before + (1 - BETA2) * square, square)
            move = rate * gradients / (squares[touched].sqrt() + EPSILON)[:, None]
        fresh = self._rows[touched].float() * (1 - rate * self.decay) - move[:, :-1]
        self._biases[touched] -= move[:, -1]
        if self._rows.dtype == torch().bfloat16:
            generator = torch().Generator(self.device).manual_seed(seed)
            noise = torch().randint(
                0, 1 << 16, fresh.shape, generator=generator, device=self.device, dtype=torch().int32
            )
            bits = (fresh.view(torch().int32) + noise) & ~0xFFFF  # up or down at random
            fresh = bits.view(torch().float32)
        self._rows[touched] = fresh.to(self._rows.dtype)

    def _on(self, array: npt.NDArray[Any]) -> Any:
        return torch().from_numpy(np.ascontiguousarray(array)).to(self.device)

    def to_arrays(self, whole: bool = False) -> dict[str, npt.NDArray[Any]]:
        """As `Head.to_arrays`: what is on the device comes back to the arrays."""
        rows = self._rows.view(torch().int16) if self._rows.dtype == torch().bfloat16 else self._rows
        self.rows[...] = rows.cpu().numpy().view(self.rows.dtype)
        self.biases[...] = self._biases.cpu().numpy()
        for own, part in zip(self.state, self._state, strict=True):
            own[...] = part.cpu().numpy()
        return super().to_arrays(whole)

    def written(self) -> None:
        """Bring the arrays to the device again."""
        self.__post_init__()

    def take(self, arrays: dict[str, npt.NDArray[Any]]) -> None:
        """As `Head.take`."""
        super().take(arrays)
        self.written()
