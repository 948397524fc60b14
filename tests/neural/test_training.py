"""The training loop: what a step is, what is kept, when it stops."""

import math

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from neural.runs import answers, learnt, make_lists, make_run, nothing
from neural.tiny import FAMILIES, save_tiny
from xmcascade import CascadeXML
from xmcascade.errors import SettingError, XmcError
from xmcascade.neural import Reader, Training, TrainingSettings, schedule, torch_threads


@pytest.fixture(autouse=True)
def one_thread():
    """More only slow such small encoders down."""
    with torch_threads(1):
        yield


@given(
    n_steps=st.integers(1, 500), warmup=st.floats(0, 1, allow_subnormal=False),
    anneal=st.floats(0, 1, allow_subnormal=False),
)  # fmt: skip
@example(n_steps=1, warmup=0.0, anneal=0.0)
@example(n_steps=10, warmup=1.0, anneal=1.0)
def test_rates_rise_stay_and_fall(n_steps, warmup, anneal):
    rates = [schedule(step, n_steps, warmup, anneal) for step in range(n_steps)]
    assert all(0 < rate <= 1 for rate in rates)
    peak = int(np.argmax(rates))
    assert rates[:peak] == sorted(rates[:peak]) and rates[peak:] == sorted(rates[peak:], reverse=True)
    level = [r for i, r in enumerate(rates) if warmup <= (i + 0.5) / n_steps <= 1 - anneal - 1e-9]
    assert all(rate == 1 for rate in level)


def same_answers(one, other):
    np.testing.assert_allclose(answers(one), answers(other), rtol=1e-5, atol=1e-5)
    for ours, theirs in zip(one.cascade.heads, other.cascade.heads, strict=True):
        np.testing.assert_allclose(ours.rows, theirs.rows, atol=1e-5)
        np.testing.assert_allclose(ours.biases, theirs.biases, atol=1e-5)


@pytest.mark.parametrize("optimizer", ["sgd", "adagrad"])
@pytest.mark.parametrize(("batch", "accumulate"), [(4, 3), (1, 12), (6, 2)])
def test_accumulated_batches_are_one_large_batch(tmp_path, optimizer, batch, accumulate):
    how = {"n_docs": 12, "optimizer": optimizer, "head_rate": 0.1}  # each step sees all documents
    start = make_run(tmp_path / "0", **how)
    runs = [
        make_run(tmp_path / f"{size}", batch=size, accumulate=parts, **how)
        for size, parts in ((12, 1), (batch, accumulate))
    ]
    for run in runs:
        run.run(6, nothing)
    assert runs[0].n_steps == runs[1].n_steps == 6
    same_answers(*runs)
    assert np.abs(answers(start) - answers(runs[0])).max() > 0.1  # it did learn


def test_every_document_is_seen_once_an_epoch_and_held_out_ones_never(tmp_path, monkeypatch):
    run = make_run(tmp_path / "0", n_docs=30, n_held=7, batch=5, evaluations=3)
    seen, batch = [], Reader.batch

    def noted(reader, tokens, docs, *more):
        if reader.encoder.model.training:
            seen.append(docs.tolist())
        return batch(reader, tokens, docs, *more)

    monkeypatch.setattr(Reader, "batch", noted)
    run.run(2, nothing)
    assert len(seen) == run.n_steps == 10
    for epoch in (seen[:5], seen[5:]):
        assert sorted(doc for docs in epoch for doc in docs) == list(range(23))


def test_long_documents_are_read_short_first(tmp_path, monkeypatch):
    run, read = make_run(tmp_path, short=5, short_part=0.75), []
    batch = Reader.batch
    monkeypatch.setattr(
        Reader, "batch", lambda self, tokens, docs: read.append(tokens) or batch(self, tokens, docs)
    )
    run.run(2, nothing)
    assert run.n_steps == 12 and run.short.lengths.max() == 5 < run.tokens.lengths.max()
    assert read == [run.short] * 9 + [run.tokens] * 3


def test_what_held_out_documents_are_about_changes_nothing_that_is_learnt(tmp_path):
    _, labels = make_lists(30)
    other = labels[:23] + [[0, 1, 2, 3]] * 7
    runs = [
        make_run(tmp_path / f"{i}", n_docs=30, n_held=7, labels=own, evaluations=1)
        for i, own in enumerate((labels, other))
    ]
    said = [run.run(2, nothing) for run in runs]
    assert said[0] != said[1]  # they were tried on
    assert learnt(runs[0]) == learnt(runs[1])


def test_the_seed_decides(tmp_path):
    runs = [make_run(tmp_path / f"{i}", dropout=0.1) for i in range(3)]
    runs[2].seed = 4
    for run in runs:
        torch.rand(1)  # what others draw does not matter
        run.run(1, nothing)
    assert learnt(runs[0]) == learnt(runs[1]) != learnt(runs[2])


@pytest.mark.parametrize("accumulate", [1, 3])
@pytest.mark.parametrize("level", [0, 1])
def test_a_loss_that_is_no_number_stops_before_anything_is_learnt(tmp_path, monkeypatch, level, accumulate):
    batch, calls = Reader.batch, []
    wrong = 3 * accumulate + accumulate // 2  # a batch of step 3, steps counted from 0

    def interrupted(reader, *args):
        calls.append(1)
        if len(calls) == wrong + 1:
            raise KeyboardInterrupt
        return batch(reader, *args)

    def poisoned(reader, *args):
        calls.append(1)
        xs = batch(reader, *args)
        if len(calls) == wrong + 1:
            xs[level] = xs[level] * math.nan
        return xs

    runs = [make_run(tmp_path / f"{i}", accumulate=accumulate) for i in (0, 1)]
    monkeypatch.setattr(Reader, "batch", interrupted)
    with pytest.raises(KeyboardInterrupt):
        runs[0].run(9, nothing)
    calls.clear()
    monkeypatch.setattr(Reader, "batch", poisoned)
    says = rf"the loss of level {level} is nan at step 3 of {54 // accumulate}\. Remedy: lower training\.rate"
    with pytest.raises(XmcError, match=says):
        runs[1].run(9, nothing)
    assert learnt(runs[0]) == learnt(runs[1])


def steps_of(monkeypatch):
    """A list that gets the encoder's parameters after each step."""
    states, step = [], Training._step

    def noted(run, *args):
        step(run, *args)
        states.append([p.detach().clone() for p in run._parameters()])

    monkeypatch.setattr(Training, "_step", noted)
    return states


def test_the_encoder_that_is_kept_can_be_a_moving_average(tmp_path, monkeypatch):
    states = steps_of(monkeypatch)
    run = make_run(tmp_path / "0", ema=0.8, n_docs=24)
    wanted = [p.detach().clone() for p in run._parameters()]
    run.run(1, nothing)
    assert len(states) == 6
    for state in states:
        wanted = [0.8 * mean + 0.2 * now for mean, now in zip(wanted, state, strict=True)]
    for found, mean, last in zip(run._parameters(), wanted, states[-1], strict=True):
        torch.testing.assert_close(found.detach(), mean, atol=1e-6, rtol=1e-5)
        assert not torch.equal(found, last)


def test_without_held_out_documents_the_last_state_is_kept(tmp_path, monkeypatch):
    states = steps_of(monkeypatch)
    run = make_run(tmp_path / "0")
    assert run.run(1, nothing) == []
    assert all(map(torch.equal, run._parameters(), states[-1]))


def test_no_epochs_no_steps(tmp_path):
    run = make_run(tmp_path / "0", n_docs=30, n_held=6)
    before, started = learnt(run), []
    assert run.run(0, lambda: started.append(1)) == []
    assert learnt(run) == before and started == [1]


@pytest.mark.parametrize("freeze", [1, 2])
def test_frozen_layers_stay_as_they_are(tmp_path, freeze):
    run, before = make_run(tmp_path / "0", freeze=freeze), learnt(make_run(tmp_path / "1"))
    run.run(1, nothing)
    changed = {name for name, part in learnt(run).items() if part != before[name]}
    assert {name for name in changed if name.startswith("head.")} == {
        f"head.{t}.{part}" for t in (0, 1) for part in ("rows", "biases")
    }
    encoder = {name for name in changed if name.startswith("encoder.")}
    assert bool(encoder) == (freeze == 1)
    assert all(".layer.1." in name for name in encoder)


def test_weights_decay_but_biases_and_norms_do_not(tmp_path):
    """With a rate of 1e-3 and a decay of 10 a weight shrinks by 1 in 100 a step, or moves by 1e-3."""
    before, run = make_run(tmp_path / "0"), make_run(tmp_path / "1", decay=10.0, clip=0.0, warmup=0, anneal=0)
    run.run(1, nothing)
    shrunk = {
        name: float(p.detach().norm() / old.detach().norm())
        for (name, p), old in zip(
            run.reader.encoder.model.named_parameters(), before.reader.encoder.model.parameters(), strict=True
        )
        if old.detach().norm() > 1 and "word_embeddings" not in name  # these have a rate of their own
    }
    matrices = {name for name in shrunk if name.endswith("weight") and "LayerNorm" not in name}
    assert len(matrices) > 10 and len(shrunk) > len(matrices)
    for name, ratio in shrunk.items():
        assert ratio == pytest.approx(0.99**6 if name in matrices else 1, abs=0.015), name


def test_rates_of_rows(tmp_path):
    assert make_run(tmp_path / "0").head_rate == 0.05
    assert make_run(tmp_path / "1", optimizer="adam", rate=2e-4).head_rate == pytest.approx(2e-3)
    assert make_run(tmp_path / "2", head_rate=0.7).head_rate == 0.7


def test_the_memory_counts_what_grows(tmp_path):
    small, large = (
        make_run(tmp_path / f"{i}", batch=4 + 60 * i, ema=0.9 * i, optimizer=["sgd", "adam"][i]).memory()
        for i in (0, 1)
    )
    assert all(large.parts[part] > small.parts[part] for part in ("optimizers", "activations", "scores"))


@pytest.mark.parametrize(("name", "value"), [("batch", 0), ("ema", 1.0), ("clip", math.inf), ("rate", -1e-4)])
def test_settings_out_of_range(name, value):
    with pytest.raises(SettingError, match=f"^{name} is {value}"):
        TrainingSettings(**{name: value})


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_of_encoders_learns_and_answers(tmp_path, family):
    texts, labels = make_lists(30)
    save_tiny(tmp_path / "encoder", family, texts=texts, layers=2)
    names = [[f"label {label}" for label in own] for own in labels]
    how = {"tree": {"levels": [2]}, "training": {"epochs": 1.0, "batch": 8}}
    model = CascadeXML(encoder=str(tmp_path / "encoder"), threads=1, **how).fit(texts, names)
    found = model.predict(texts, k=3)
    assert all(len(row) == 3 and all(0 <= p.probability <= 1 for p in row) for row in found)
    model.save(tmp_path / "model")
    assert CascadeXML.load(tmp_path / "model", threads=1).predict(texts, k=3) == found
