"""AdamW for an encoder, with the token embeddings apart: only rows of tokens that a batch has are touched.

Embeddings are half of a small encoder's numbers and a batch has a few hundred of their rows: a gradient and
moments for all of them would cost as much time as the rest of the optimizer.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from xmcascade.neural.encoder import Encoder
from xmcascade.neural.extra import torch
from xmcascade.neural.networks import Network

__all__ = ["EncoderOptimizer"]

BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-8


class EncoderOptimizer:
    """One step of all trained parameters of an encoder; biases and norms do not decay."""

    def __init__(self, encoder: Encoder | Network, decay: float) -> None:
        embedding = encoder.embeddings
        self.rows: Any = embedding.weight if embedding.weight.requires_grad else None
        self.decay = decay
        if self.rows is not None:
            embedding.sparse = True
            self.moments = [torch().zeros_like(self.rows, requires_grad=False) for _ in range(2)]
            self.steps = torch().zeros(len(self.rows), 1, dtype=torch().int32, device=self.rows.device)
        every = [p for p in encoder.model.parameters() if p.requires_grad and p is not self.rows]
        groups = [
            {"params": [p for p in every if p.ndim > 1], "weight_decay": decay},
            {"params": [p for p in every if p.ndim <= 1], "weight_decay": 0.0},
        ]
        groups = [group for group in groups if group["params"]]
        self.dense = torch().optim.AdamW(groups, fused=True) if groups else None
        self.every = every

    def step(self, rate: float, row_rate: float, clip: float) -> None:
        """Go one step down the gradients, which are then gone; row_rate is of the token embeddings."""
        gradients = [p.grad for p in self.every if p.grad is not None]
        own = None
        if self.rows is not None and self.rows.grad is not None:
            own = self.rows.grad.coalesce()
            gradients.append(own.values())
        if clip and gradients:
            length = float(torch().nn.utils.get_total_norm(gradients))
            if length > clip:
                torch()._foreach_mul_(gradients, clip / length)
        if own is not None:
            self._rows_step(own.indices()[0], own.values(), row_rate)
            self.rows.grad = None
        if self.dense is not None:
            for group in self.dense.param_groups:
                group["lr"] = rate
            self.dense.step()
            self.dense.zero_grad(set_to_none=True)

    def _rows_step(self, ids: Any, gradients: Any, rate: float) -> None:
        first, second = self.moments
        steps = self.steps[ids] + 1
        mean = BETA1 * first[ids] + (1 - BETA1) * gradients
        square = BETA2 * second[ids] + (1 - BETA2) * gradients**2
        self.steps[ids], first[ids], second[ids] = steps, mean, square
        move = mean / (1 - BETA1**steps) / ((square / (1 - BETA2**steps)).sqrt() + EPSILON)
        with torch().no_grad():
            self.rows[ids] = self.rows[ids] * (1 - rate * self.decay) - rate * move

    def to_arrays(self) -> dict[str, npt.NDArray[Any]]:
        """All that is remembered between steps."""
        arrays = {}
        if self.rows is not None:
            parts = (*self.moments, self.steps)
            arrays = {f"rows.{i}": part.cpu().numpy() for i, part in enumerate(parts)}
        states = {} if self.dense is None else self.dense.state_dict()["state"]
        for i, state in states.items():
            for name, value in state.items():
                arrays[f"{i}.{name}"] = np.atleast_1d(value.cpu().numpy())
        return arrays

    def take(self, arrays: dict[str, npt.NDArray[Any]]) -> None:
        """Become what to_arrays gave."""
        if self.rows is not None:
            for i, part in enumerate((*self.moments, self.steps)):
                part.copy_(torch().from_numpy(np.array(arrays[f"rows.{i}"])))
        if self.dense is None:
            return
        states: dict[int, dict[str, Any]] = {}
        for key, array in arrays.items():
            number, _, name = key.partition(".")
            if number != "rows":
                tensor = torch().from_numpy(np.array(array))
                states.setdefault(int(number), {})[name] = tensor[0] if name == "step" else tensor
        self.dense.load_state_dict({**self.dense.state_dict(), "state": states})
