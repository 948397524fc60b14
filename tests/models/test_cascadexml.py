"""What is particular to CascadeXML: what it derives, its score modes, its folders, and what it refuses."""

import sys
from itertools import product

import numpy as np
import pytest

from contract.world import hashes
from neural.runs import N_LABELS, make_lists
from neural.tiny import TEXTS, save_tiny
from xmcascade import CascadeXML, Corpus, LightXML, load
from xmcascade.errors import DataError, MissingExtraError, ModelFolderError, SettingError
from xmcascade.kernels.bfloat import narrowed
from xmcascade.models import base
from xmcascade.models import held as held_module
from xmcascade.models.cascade_settings import PRESETS
from xmcascade.neural import extra, plan
from xmcascade.store import Strings, load_folder, save_folder

LABELS = [f"label {i:02}" for i in range(N_LABELS)]
QUICK = {"epochs": 1.0, "head_epochs": 5.0, "batch": 16}
NOTHING = {"epochs": 0.0, "head_epochs": 0.0}


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    """A folder with an encoder of three layers."""
    folder = tmp_path_factory.mktemp("encoder")
    save_tiny(folder, texts=[*make_lists(60)[0], *TEXTS])
    return str(folder)


def corpus(n_docs=60):
    texts, labels = make_lists(n_docs)
    return texts, [[LABELS[label] for label in own] for own in labels]


@pytest.fixture(scope="module")
def make(encoder):
    def make(**values):
        how = {"tree": {"levels": [4]}, "training": QUICK} | values
        return CascadeXML(encoder=encoder, threads=1, **how)

    return make


@pytest.fixture(scope="module")
def fitted(make):
    return make().fit(*corpus(240))


# Settings -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"layers": [[1]]}, r"layers has 1 values. Remedy: give 2, one for each level"),
        ({"layers": [[1], [2], [3]]}, r"layers has 3 values. Remedy: give 2"),
        ({"layers": [[1], [4]]}, r"encoder layers 1 to 4 are read. Remedy: use 1 to 3"),
        ({"shortlists": []}, r"shortlists has 0 values. Remedy: give 1"),
        ({"shortlists": [2, 2]}, r"shortlists has 2 values. Remedy: give 1"),
        ({"dropouts": [0.1]}, r"dropouts has 1 values. Remedy: give 2"),
        ({"freeze_layers": 4}, r"4 frozen layers. Remedy: use 0 to 3"),
    ],
)
def test_values_that_do_not_fit_the_levels_are_refused(make, values, says):
    with pytest.raises(SettingError, match=says):
        make(**values).fit(*corpus())


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"layers": [[1], []]}, r"layers is .*one or more encoder layers for each level"),
        ({"shortlists": [0]}, r"shortlists is .*from 1 up"),
        ({"dropouts": [0.1, 1.0]}, r"dropouts is .*below 1"),
        ({"max_tokens": 2}, r"max_tokens is 2.*from 3 up"),
        ({"pooling": "max"}, r"pooling is 'max'.*'cls', 'mean'"),
        ({"training": {"batch": 0}}, r"batch is 0.*1 to 65536"),
    ],
)
def test_values_out_of_range_are_refused_at_once(values, says):
    with pytest.raises(SettingError, match=says):
        CascadeXML(**values)


def test_derived_values_are_stored_with_their_reasons(fitted, tmp_path):
    fitted.save(tmp_path / "model")
    for derived in (fitted.derived, load(tmp_path / "model").derived):
        assert all(fact["reason"] for fact in derived.values())
        values = {name: fact["value"] for name, fact in derived.items()}
        assert values["layers"] == [[1, 2], [3]]
        assert values["max_tokens"] == 64 and values["shortlists"] == [4]
        assert (values["optimizer"], values["precision"]) == ("adagrad", "float32")
        assert values["dropouts"] == [0.0, 0.0] and values["held_out"] == 7
        assert [facts["step"] for facts in values["history"]] == [4, 8, 11, 15]
        assert len(values["powers"]) == 2 and "held-out" in derived["powers"]["reason"]
        assert "epochs" not in values  # it was set


def test_what_is_set_is_not_derived(make):
    values = {"layers": [[2], [1, 3]], "shortlists": [2], "dropouts": [0.1, 0.2], "optimizer": "sgd"}
    values |= {"precision": "bfloat16", "max_tokens": 7, "score": "last"}
    values |= {"training": QUICK | {"short_tokens": 5, "arithmetic": "bfloat16"}}
    model = make(**values).fit(*corpus())
    assert model.derived == {}
    state = model._learnt.state
    assert state.cascade.keeps == (2,) and state.text.max_tokens == 7
    assert [head.rows.shape[1] for head in state.cascade.heads] == [16, 32]
    assert {head.rows.dtype for head in state.cascade.heads} == {np.dtype(np.uint16)}


def test_long_texts_are_read_short_for_most_of_training(make, monkeypatch):
    monkeypatch.setattr(plan, "SHORT_TOKENS", 8)
    texts, labels = corpus()
    long, name = [" ".join([text] * 10) for text in texts], "training.short_tokens"
    assert make(max_tokens=9).fit(long, labels).derived[name]["value"] == 0
    assert make(max_tokens=16).fit(long, labels).derived[name]["value"] == 8
    assert name not in make(max_tokens=16, freeze_layers=1).fit(long, labels).derived


@pytest.mark.parametrize(("n_labels", "sizes"), [(1999, [1999]), (2000, [256, 2000])])
def test_a_tree_is_built_where_there_are_many_labels(encoder, n_labels, sizes):
    texts = [f"the w{i % 12}a w{i % 7}b" for i in range(n_labels)]
    model = CascadeXML(encoder=encoder, init="random", training=NOTHING, threads=1)
    model.fit(texts, [[f"{i}"] for i in range(n_labels)])
    assert model._learnt.state.cascade.tree.sizes == sizes
    assert model.derived["tree.levels"] == {"value": sizes[:-1], "reason": f"{n_labels:,} labels"}


def test_a_deep_tree_needs_no_settings_either(make):
    texts = [f"the w{i % 12}a w{i % 7}b {i}" for i in range(64)]
    model = make(tree={"levels": [2, 4, 8, 16, 32]}, training=NOTHING)
    model.fit(texts, [[f"{i}"] for i in range(64)])
    assert model.derived["shortlists"]["value"] == [2, 4, 8, 16, 32]
    assert model.derived["layers"]["value"] == [[1], [1], [1], [1], [2], [3]]


@pytest.mark.parametrize(("n_docs", "n_held"), [(199, 0), (200, 6)])
def test_documents_are_held_out_where_there_are_enough(make, n_docs, n_held):
    model = make(training=NOTHING).fit(*corpus(n_docs))
    assert model.derived.get("held_out", {"value": 0})["value"] == n_held
    assert ("powers" in model.derived) == (n_held > 0)


def test_documents_that_are_all_alike_are_all_learnt_from(make):
    texts, labels = ["the same"] * 240, corpus(240)[1]
    assert "held_out" not in make(training=NOTHING).fit(texts, labels).derived


# Answers --------------------------------------------------------------------------------------------------


def test_scores_by_mode(make):
    texts, labels = corpus()
    found = {}
    for mode in ("last", "parent", "path"):
        model = make(tree={"levels": [2, 4]}, score=mode, seed=1, precision="float32").fit(texts, labels)
        found[mode] = np.array([[p.score for p in row] for row in model.score(texts, LABELS)])
        state = model._learnt.state
        assert state.powers == plan.powers(mode, 3)
    xs = model._read(state, Corpus.from_lists(texts, labels))
    own = [x @ head.rows.T + head.biases for x, head in zip(xs, state.cascade.heads, strict=True)]
    log = [-np.logaddexp(0, -z.astype(float)) for z in own]
    tree = state.cascade.tree
    for label, mode in product(range(N_LABELS), found):
        node = [int(tree.positions[label])]
        for above in reversed(tree.parents):
            node.insert(0, int(above[node[0]]))
        counted = {"last": 1, "parent": 2, "path": 3}[mode]
        wanted = sum(log[t][:, node[t]] for t in range(3 - counted, 3))
        np.testing.assert_allclose(found[mode][:, label], wanted, rtol=1e-4, atol=1e-5)


def test_the_chosen_mode_is_one_that_was_tried(fitted):
    assert fitted._learnt.state.powers in {(0.0, 1.0), (0.25, 1.0), (0.5, 1.0), (1.0, 1.0)}


@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_it_learns(make, pooling):
    texts, labels = corpus(120)
    training = {"epochs": 12.0, "head_epochs": 20.0, "rate": 0.01, "batch": 8}
    model = make(pooling=pooling, training=training, layers=[[1], [1]]).fit(texts, labels)
    assert model.evaluate(Corpus.from_lists(texts, labels), replicates=0).metrics["P@1"] > 80


def test_only_allowed_labels_are_found(fitted):
    texts, _ = corpus(30)
    some = [LABELS[3], LABELS[8], LABELS[1]]
    found = fitted.predict(texts, k=9, allowed_labels=some)
    scored = fitted.score(texts, some)
    for row, known in zip(found, scored, strict=True):
        assert [p.label for p in row] == [p.label for p in sorted(known, key=lambda p: -p.score)]
        assert {p.label: pytest.approx(p.score, abs=1e-5) for p in row} == {p.label: p.score for p in known}


@pytest.mark.parametrize("layers", [[[1, 2], [3]], [[1], [3]]], ids=["stored", "not stored"])
def test_frozen_layers_stay_as_they_came(make, layers):
    before = make(training=NOTHING, layers=layers).fit(*corpus())
    model = make(freeze_layers=1 if layers[0] == [1, 2] else 2, layers=layers).fit(*corpus())
    ours, theirs = (one._learnt.state.text.reader.encoder.state()[0] for one in (model, before))
    changed = {name for name in ours if ours[name].tobytes() != theirs[name].tobytes()}
    frozen = ("embeddings", "layer.0.") if layers[0] == [1, 2] else ("embeddings", "layer.0.", "layer.1.")
    assert changed and not any(part in name for part in frozen for name in changed)


# Folders --------------------------------------------------------------------------------------------------


def test_rows_are_kept_as_asked_and_else_as_bfloat16(make):
    whole, short = (make(precision=kind).fit(*corpus())._learnt.state.cascade for kind in ("float32", None))
    assert {head.rows.dtype for head in whole.heads} == {np.dtype(np.float32)}
    for long, head in zip(whole.heads, short.heads, strict=True):
        assert np.array_equal(head.rows, narrowed(long.rows))  # both were trained as float32
        assert np.array_equal(head.biases, long.biases)


@pytest.mark.parametrize("precision", ["float32", "bfloat16", None])
def test_a_loaded_model_answers_the_same(make, tmp_path, precision):
    model = make(precision=precision, layers=[[1], [2, 3]], max_tokens=9).fit(*corpus())
    model.save(tmp_path / "model")
    loaded = load(tmp_path / "model", threads=1)
    assert loaded.settings == model.settings
    texts = [*corpus()[0], "", "unheard", "the w1a " * 50]
    assert loaded.predict(texts, k=12) == model.predict(texts, k=12)
    assert loaded.score(texts, LABELS) == model.score(texts, LABELS)
    loaded.save(tmp_path / "again")
    assert hashes(tmp_path / "again") == hashes(tmp_path / "model")


def test_layers_that_nothing_reads_are_not_kept(make):
    state = make(layers=[[1], [2]]).fit(*corpus())._learnt.state
    assert state.text.reader.encoder.n_layers == 2


@pytest.fixture(scope="module")
def folder(fitted, tmp_path_factory):
    path = tmp_path_factory.mktemp("saved") / "model"
    fitted.save(path)
    return path


def tampered(folder, tmp_path, arrays=None, values=None, strings=None, settings=None):
    """The folder with other parts, and hashes that are right."""
    manifest, old_arrays, old_strings = load_folder(folder)
    kept = {name: array.copy() for name, array in old_arrays.items()}
    for name, change in (arrays or {}).items():
        kept[name] = change(kept[name]) if name in kept else change
    save_folder(
        tmp_path / "tampered", kind="cascadexml", settings=manifest.settings | (settings or {}),
        n_labels=manifest.n_labels, arrays={k: v for k, v in kept.items() if v is not None},
        strings=old_strings | (strings or {}), values=manifest.values | (values or {}),
    )  # fmt: skip
    return tmp_path / "tampered"


def test_an_untampered_folder_is_fine(folder, tmp_path, fitted):
    texts = corpus()[0]
    assert load(tampered(folder, tmp_path)).predict(texts) == fitted.predict(texts)


BIAS = "encoder.encoder.layer.0.output.dense.bias"


@pytest.mark.parametrize(
    "change",
    [
        {"arrays": {"head.0.rows": lambda a: a[:-1]}},
        {"arrays": {"head.1.rows": lambda a: a[:, :-1]}},
        {"arrays": {"head.1.rows": lambda a: a.reshape(-1)}},
        {"arrays": {"head.1.rows": lambda a: a.astype(np.float64)}},
        {"arrays": {"head.1.rows": lambda a: a.astype(np.int32)}},
        {"arrays": {"head.1.rows": lambda _: None}},
        {"arrays": {"head.0.biases": lambda a: a[:-1]}},
        {"arrays": {"head.0.biases": lambda a: a[:, None]}},
        {"arrays": {"head.0.biases": lambda a: a.astype(np.float64)}},
        {"arrays": {"head.0.biases": lambda _: None}},
        {"arrays": {"tree.order": lambda a: a[:-1]}},
        {"arrays": {"tree.order": lambda a: a * 0}},
        {"arrays": {"tree.offsets.0": lambda a: a[::-1].copy()}},
        {"arrays": {"tree.offsets.0": lambda a: np.append(a, 99)}},
        {"arrays": {"tree.offsets.0": lambda _: None}},
        {"arrays": {"tree.offsets.1": np.array([0, 12])}},
        {"arrays": {BIAS: lambda a: a[:-1]}},
        {"arrays": {BIAS: lambda _: None}},
        {"arrays": {"encoder.more": np.zeros(3, np.float32)}},
        {"values": {"reads": [[1, 2]]}},
        {"values": {"reads": [[1, 2], [3], [3]]}},
        {"values": {"reads": [[1], [3]]}},
        {"values": {"reads": "all"}},
        {"values": {"keeps": []}},
        {"values": {"keeps": [4, 4]}},
        {"values": {"keeps": [0]}},
        {"values": {"powers": [1.0]}},
        {"values": {"powers": ["much", 1.0]}},
        {"values": {"max_tokens": None}},
        {"values": {"encoder": {"model_type": "bert"}}},
        {"values": {"encoder": None}},
        {"strings": {"tokenizer": Strings.of(["{}"])}},
        {"strings": {"tokenizer": Strings.of([])}},
        {"settings": {"pooling": "max"}},
    ],
    ids=lambda change: next(iter(next(iter(change.values())))),
)
def test_parts_that_do_not_fit_are_refused(folder, tmp_path, change):
    with pytest.raises(ModelFolderError, match=r"do not fit together.*Remedy"):
        load(tampered(folder, tmp_path, **change))


# Without the extra ----------------------------------------------------------------------------------------


def test_without_torch_it_says_how_to_install_it(make, folder, monkeypatch):
    extra.needed.cache_clear()
    monkeypatch.setitem(sys.modules, "torch", None)
    try:
        model = make()  # settings need no torch
        with pytest.raises(MissingExtraError, match=r"torch is not installed.*pip install 'xmc"):
            model.fit(*corpus())
    finally:
        extra.needed.cache_clear()


# Presets --------------------------------------------------------------------------------------------------

TABLE_9 = {  # layers, clusters, candidates of the levels below them, epochs, tokens, dropouts
    "wiki10-31k": (((9, 10), (11,), (12,)), (9, 12), (9, 9), 15, 256, (0.3, 0.3, 0.4)),
    "amazoncat-13k": (((7, 8), (10,), (12,)), (8, 11), (8, 8), 6, 256, (0.2, 0.3, 0.4)),
    "wiki-500k": (((5, 6), (8,), (10,), (12,)), (10, 13, 16), (10, 11, 12), 12, 128, (0.2, 0.25, 0.35, 0.5)),
    "amazon-670k": (((5, 6), (8,), (10,), (12,)), (10, 13, 16), (10, 11, 12), 15, 128, (0.2, 0.25, 0.4, 0.5)),
    "amazon-3m": (((5, 6), (8,), (10,), (12,)), (10, 13, 16), (10, 11, 12), 15, 128, (0.2, 0.25, 0.3, 0.5)),
}
SIZES = {"wiki10-31k": 30_938, "amazoncat-13k": 13_330, "wiki-500k": 501_070, "amazon-670k": 670_091}
SIZES["amazon-3m"] = 2_812_281


@pytest.mark.parametrize("name", TABLE_9)
def test_presets_are_table_9(name):
    layers, clusters, candidates, epochs, tokens, dropouts = TABLE_9[name]
    preset = PRESETS[name]
    assert (preset.layers, preset.dropouts, preset.max_tokens) == (layers, dropouts, tokens)
    assert preset.tree.levels == tuple(2**n for n in clusters)
    assert preset.training.epochs == epochs
    assert (preset.training.rate, preset.training.head_rate) == (1e-4, 1e-3)
    sizes = [*preset.tree.levels, SIZES[name]]
    for keep, size, below, wanted in zip(preset.shortlists, sizes, sizes[1:], candidates, strict=False):
        assert keep * below / size == pytest.approx(2**wanted, rel=0.1)


def test_ablations_change_one_thing():
    for name in ("wiki-500k", "amazon-670k", "amazon-3m"):
        assert PRESETS[f"{name}/no-rescale"] == PRESETS[name].with_values({"rescale": False})
        coarse = PRESETS[f"{name}/coarse"]
        assert coarse.tree.levels == (2**10, 2**13, 2**15)
        assert (
            coarse.with_values({"tree": PRESETS[name].tree, "shortlists": PRESETS[name].shortlists})
            == PRESETS[name]
        )


# LightXML -------------------------------------------------------------------------------------------------


def test_lightxml_has_one_level_of_clusters_and_reads_the_last_layers(encoder):
    texts = [f"the w{i % 12}a w{i % 7}b" for i in range(2100)]
    model = LightXML(encoder=encoder, training=NOTHING, init="random", threads=1)
    model.fit(texts, [[f"{i}"] for i in range(2100)])
    state = model._learnt.state
    assert state.cascade.tree.sizes == [32, 2100]
    assert state.text.reader.reads == ((1, 2, 3), (1, 2, 3))
    assert state.powers == (1.0, 1.0) and not model.settings.rescale


# Texts of labels ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("init", ["texts", "both"])
def test_rows_start_from_texts_of_labels(make, init):
    texts, labels = corpus()
    told = {label: f"w{i}a w{i}b w{i}c" for i, label in enumerate(LABELS)}
    whole = Corpus.from_lists(texts, labels, label_texts=told)
    model = make(training=NOTHING, init=init).fit(whole)
    found = model.predict(list(told.values()), k=3)
    named = [LABELS[i] in {p.label for p in row} for i, row in enumerate(found)]
    blank = make(training=NOTHING, init="random").fit(whole).predict(list(told.values()), k=3)
    guessed = [LABELS[i] in {p.label for p in row} for i, row in enumerate(blank)]
    assert sum(named) > sum(guessed) + 3
    with pytest.raises(DataError, match=r"labels have no texts.*Remedy"):
        make(training=NOTHING, init=init).fit(texts, labels)


def test_labels_texts_are_learnt_from_but_not_chosen_on(make, monkeypatch):
    texts, labels = corpus(240)
    whole = Corpus.from_lists(texts, labels, label_texts={label: f"w{i}a" for i, label in enumerate(LABELS)})
    seen = {}

    def held_out(found, seed, run):
        docs, held = held_module.held_out(found, seed, run)
        seen.update(n_docs=found.n_docs, docs=docs, held=held)
        return docs, held

    monkeypatch.setattr(base, "held_out", held_out)
    make(training=NOTHING, label_documents=True).fit(whole)
    assert seen["n_docs"] == 240 + N_LABELS
    assert len(seen["held"])
    assert max(seen["held"]) < 240
    assert set(range(240, 240 + N_LABELS)) <= set(seen["docs"].tolist())
