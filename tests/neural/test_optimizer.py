"""AdamW with the token embeddings apart, against torch's own AdamW."""

import numpy as np
import pytest
import torch

from neural.tiny import FAMILIES, TEXTS, batch, tiny
from xmcascade.neural.optimizer import EncoderOptimizer

DECAY = 0.3


def backward(encoder, texts, scale=1.0):
    """Gradients of some loss, beside those that are there."""
    [found] = encoder.features(*batch(encoder, texts), ((3,),), "mean")
    (scale * found * torch.linspace(-1, 2, found.numel()).reshape(found.shape)).sum().backward()


def trained(encoder):
    return dict(encoder.model.named_parameters())


class Witness:
    """torch's AdamW, on copies of an encoder's parameters and gradients."""

    def __init__(self, encoder):
        self.encoder = encoder
        self.every = {name: p.detach().clone().requires_grad_() for name, p in trained(encoder).items()}
        matrices = [p for p in self.every.values() if p.ndim > 1]
        vectors = [p for p in self.every.values() if p.ndim <= 1]
        self.optimizer = torch.optim.AdamW([{"params": matrices}, {"params": vectors, "weight_decay": 0.0}])
        self.optimizer.param_groups[0]["weight_decay"] = DECAY

    def step(self, rate, clip):
        for name, p in trained(self.encoder).items():
            self.every[name].grad = None if p.grad is None else torch.zeros_like(p) + p.grad
        if clip:
            torch.nn.utils.clip_grad_norm_(self.every.values(), clip)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.step()


@pytest.mark.parametrize("clip", [0.0, 0.5, 1e9])
@pytest.mark.parametrize("family", [*FAMILIES, "minilm"])
def test_steps_are_those_of_torch_on_tokens_that_every_batch_has(family, clip):
    encoder = tiny(family)
    optimizer, witness = EncoderOptimizer(encoder, DECAY), Witness(encoder)
    before = {name: p.detach().clone() for name, p in trained(encoder).items()}
    rows = encoder.model.get_input_embeddings().weight
    for rate in (0.01, 0.02, 0.005):
        backward(encoder, TEXTS[:2])
        backward(encoder, TEXTS[2:], scale=0.5)  # gradients of two batches add up
        touched = rows.grad.coalesce().indices()[0]
        witness.step(rate, clip)
        optimizer.step(rate, rate, clip)
        assert all(p.grad is None for p in encoder.model.parameters())
    for name, found in trained(encoder).items():
        wanted = witness.every[name]
        if found is rows:
            seen = set(batch(encoder)[0].flatten().tolist()) - {encoder.pad}
            assert seen <= set(touched.tolist()) <= seen | {encoder.pad}
            others = np.setdiff1d(np.arange(len(rows)), touched)
            assert len(others) and torch.equal(found[others], before[name][others])
            found, wanted = found[touched], wanted[touched]
            assert (found - before[name][touched]).abs().min() > 0
        torch.testing.assert_close(found, wanted, atol=1e-6, rtol=1e-5, msg=name)


def test_token_embeddings_have_a_rate_of_their_own():
    encoder = tiny()
    optimizer = EncoderOptimizer(encoder, 0.0)
    before = {name: p.detach().clone() for name, p in trained(encoder).items()}
    backward(encoder, TEXTS)
    optimizer.step(0.0, 0.1, 0.0)
    changed = {name for name, p in trained(encoder).items() if not torch.equal(p, before[name])}
    assert changed == {"embeddings.word_embeddings.weight"}
    backward(encoder, TEXTS)
    rows = encoder.model.get_input_embeddings().weight.detach().clone()
    optimizer.step(0.1, 0.0, 0.0)
    assert torch.equal(encoder.model.get_input_embeddings().weight, rows)
    assert sum(not torch.equal(p, before[name]) for name, p in trained(encoder).items()) > 20


@pytest.mark.parametrize("frozen", [0, 1, 3])
def test_it_goes_on_from_what_it_kept(frozen):
    runs = []
    for stop in (False, True):
        encoder = tiny()
        encoder.freeze(frozen)
        optimizer = EncoderOptimizer(encoder, DECAY)
        for i in range(4):
            if frozen < 3:
                backward(encoder, TEXTS[: i + 1])
            optimizer.step(0.01, 0.02, 1.0)
            if stop and i == 1:
                kept = {name: array.copy() for name, array in optimizer.to_arrays().items()}
                optimizer = EncoderOptimizer(encoder, DECAY)
                optimizer.take(kept)
        runs.append(encoder.state()[0])
    for name, array in runs[0].items():
        assert array.tobytes() == runs[1][name].tobytes(), name


def test_frozen_embeddings_are_left_alone():
    encoder = tiny()
    encoder.freeze(1)
    before = {name: p.detach().clone() for name, p in trained(encoder).items()}
    optimizer = EncoderOptimizer(encoder, DECAY)
    backward(encoder, TEXTS)
    optimizer.step(0.1, 0.1, 0.0)
    changed = {name for name, p in trained(encoder).items() if not torch.equal(p, before[name])}
    assert changed and all(".layer.1." in name or ".layer.2." in name for name in changed)
