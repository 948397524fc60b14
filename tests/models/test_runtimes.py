"""What runs an encoder: graphs that a model carries, when they may, and which one is used."""

import logging
import subprocess
import sys

import numpy as np
import pytest

from contract.world import hashes
from neural.runs import N_LABELS, make_lists
from neural.tiny import save_tiny
from xmcascade import XMLCNN, AttentionXML, CascadeXML, Ensemble, XRLinear, XRTransformer, load
from xmcascade.errors import DataError, ModelFolderError, SettingError, XmcError
from xmcascade.models import RuntimeReport, export_runtime, runtimes
from xmcascade.store import load_folder, save_folder

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

LABELS = [f"label {i:02}" for i in range(N_LABELS)]
QUICK = {"epochs": 1.0, "batch": 16}
TEXTS, _ = make_lists(200, seed=1)


@pytest.fixture(scope="module")
def lists():
    texts, labels = make_lists(120)
    return texts, [[LABELS[label] for label in own] for own in labels]


@pytest.fixture(scope="module")
def encoder(tmp_path_factory, lists):
    folder = tmp_path_factory.mktemp("encoder")
    save_tiny(folder, texts=lists[0], layers=2, width=32)
    return str(folder)


@pytest.fixture(scope="module")
def plain(tmp_path_factory, encoder, lists):
    """A folder of a model without graphs."""
    folder = tmp_path_factory.mktemp("plain") / "model"
    how = {"tree": {"levels": [4]}, "training": QUICK | {"head_epochs": 20.0}, "tfidf": True}
    CascadeXML(encoder=encoder, threads=1, **how).fit(*lists).save(folder)
    return folder


@pytest.fixture(scope="module")
def carrying(tmp_path_factory, plain):
    """The same with both graphs, and what was said of the second."""
    folder, model = tmp_path_factory.mktemp("carrying") / "model", load(plain, threads=1)
    export_runtime(model, "onnx", TEXTS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runtimes, "LEAST_AGREEMENT", 0.9)  # few words, few labels: the last places are a toss
        report = export_runtime(model, "onnx-int8", TEXTS)
    model.save(folder)
    return folder, report


def assert_alike(one, other, atol=1e-4):
    np.testing.assert_array_equal(one.labels, other.labels)
    np.testing.assert_allclose(one.scores, other.scores, atol=atol)


# Exporting ------------------------------------------------------------------------------------------------


def test_an_exported_model_answers_as_before(plain, tmp_path):
    model = load(plain, threads=1)
    right = model.rank(TEXTS)
    report = export_runtime(model, "onnx", TEXTS)
    assert isinstance(report, RuntimeReport)
    assert (report.runtime, report.n_docs, report.agreement, report.identical) == ("onnx", 200, 1.0, 1.0)
    assert report.milliseconds.keys() == {"torch", "onnx"} and min(report.milliseconds.values()) > 0
    assert report.default == model.runtime == min(report.milliseconds, key=report.milliseconds.get)
    model.save(tmp_path / "model")
    assert report.n_bytes == load_folder(tmp_path / "model")[1]["runtime.onnx"].nbytes
    found = load(tmp_path / "model", threads=1, runtime="onnx")
    assert found.runtime == "onnx"
    assert_alike(found.rank(TEXTS), right)


def test_texts_are_made_of_names_where_none_are_given(plain):
    report = export_runtime(load(plain, threads=1), "onnx")
    assert report.n_docs == 500 and report.agreement > 0.99


def test_many_documents_are_thinned(plain):
    assert export_runtime(load(plain, threads=1), "onnx", TEXTS * 21).n_docs == 1400
    with pytest.raises(DataError, match="no documents"):
        export_runtime(load(plain, threads=1), "onnx", [])


def test_two_exports_give_the_same_graphs(plain, carrying):
    model = load(plain, threads=1)
    export_runtime(model, "onnx", TEXTS)
    kept = load_folder(carrying[0])[1]
    assert model._fitted().state.text.graphs["onnx"].tobytes() == kept["runtime.onnx"].tobytes()
    assert "runtime.onnx-int8" in kept


@pytest.mark.parametrize("used", ["torch", "onnx", "onnx-int8"])
def test_what_disagrees_is_not_exported(carrying, used, monkeypatch, tmp_path):
    model = load(carrying[0], threads=1, runtime=used)
    right = model.rank(TEXTS)
    monkeypatch.setattr(runtimes, "LEAST_AGREEMENT", 0.999)
    with pytest.raises(XmcError, match=r"onnx-int8 names 9\d\.\d% of the 5 best labels of 200 doc.*less"):
        export_runtime(model, "onnx-int8", TEXTS)
    assert model.runtime == used
    assert_alike(model.rank(TEXTS), right, atol=0)
    model.save(tmp_path / "model")
    assert hashes(tmp_path / "model") == hashes(carrying[0])


def test_agreement_counts_labels_and_documents():
    right, found = np.array([[1, 2, -1], [3, 4, 5]]), np.array([[2, 1, -1], [3, 9, 5]])
    assert runtimes._agreement(right, found) == (pytest.approx(5 / 6), 0.5)


@pytest.mark.parametrize("kind", [XMLCNN, AttentionXML])
def test_networks_that_are_no_transformers_are_refused(kind, encoder, lists):
    small = {"hidden": 16, "training": QUICK, "threads": 1}
    model = kind(encoder=encoder, **small).fit(*lists)
    with pytest.raises(SettingError, match=rf"{kind.name} has no encoder.*such as cascadexml"):
        export_runtime(model, "onnx", TEXTS)


def test_what_is_no_runtime_is_refused(plain):
    model = load(plain, threads=1)
    for wrong in ("torch", "tensorrt"):
        with pytest.raises(SettingError, match=rf"no runtime '{wrong}'. Remedy: use onnx or onnx-int8"):
            export_runtime(model, wrong, TEXTS)
    with pytest.raises(SettingError, match="no runtime 'tensorrt'"):
        load(plain, runtime="tensorrt")


def test_xr_transformer_and_ensembles_carry_graphs_too(encoder, lists, tmp_path):
    one = XRTransformer(encoder=encoder, threads=1, training=QUICK, tree={"levels": [4]}).fit(*lists)
    both = Ensemble.of([one, XRLinear(threads=1).fit(*lists)])
    for model in (one, both):
        right = model.rank(TEXTS)
        assert export_runtime(model, "onnx", TEXTS).agreement > 0.999
        model.save(tmp_path / model.name)
        found = load(tmp_path / model.name, threads=1, runtime="onnx")
        assert found.runtime == "onnx"
        assert_alike(found.rank(TEXTS), right)
        assert load(tmp_path / model.name, threads=1, runtime="torch").runtime == "torch"


# Loading --------------------------------------------------------------------------------------------------


def test_the_fastest_is_used_unless_told(carrying, caplog):
    folder, report = carrying
    with caplog.at_level(logging.INFO, "xmcascade"):
        found = load(folder, threads=1)
    assert found.runtime == report.default == min(report.milliseconds, key=report.milliseconds.get)
    assert f"{report.default} runs the encoder" in caplog.text
    answers = {name: load(folder, threads=1, runtime=name) for name in ("torch", "onnx", "onnx-int8")}
    assert [model.runtime for model in answers.values()] == list(answers)
    assert_alike(answers["onnx"].rank(TEXTS), answers["torch"].rank(TEXTS))
    rounded, right = (answers[name].rank(TEXTS).labels for name in ("onnx-int8", "torch"))
    assert runtimes._agreement(right, rounded)[0] == report.agreement > 0.95


def test_saving_what_was_loaded_changes_nothing(carrying, tmp_path):
    for name in ("torch", "onnx"):
        load(carrying[0], threads=1, runtime=name).save(tmp_path / name)
        assert hashes(tmp_path / name) == hashes(carrying[0])


def test_a_model_can_be_exported_into_its_own_folder(plain, tmp_path):
    load(plain, threads=1).save(tmp_path / "model")
    model = load(tmp_path / "model", threads=1)
    export_runtime(model, "onnx", TEXTS)
    model.save(tmp_path / "model")
    assert_alike(load(tmp_path / "model", threads=1, runtime="onnx").rank(TEXTS), model.rank(TEXTS))


def test_labels_come_and_go_whatever_runs_the_encoder(carrying):
    found = []
    for name in ("torch", "onnx"):
        model = load(carrying[0], threads=1, runtime=name)
        model.add_labels(["more"], examples=[TEXTS[:3]]).remove_labels([LABELS[0]])
        assert model.runtime == name
        found.append(model.rank(TEXTS))
    np.testing.assert_allclose(found[0].scores, found[1].scores, atol=1e-3)


def test_what_is_not_there_is_said_with_its_remedy(plain):
    with pytest.raises(SettingError, match=r"carries no 'onnx-int8'. Remedy: xmcascade export .*model --run"):
        load(plain, runtime="onnx-int8")
    assert load(plain, threads=1).runtime == "torch"


def test_linear_models_have_nothing_to_choose(lists, tmp_path):
    model = XRLinear(threads=1).fit(*lists)
    model.save(tmp_path / "model")
    assert model.runtime is None and load(tmp_path / "model", runtime="torch").runtime is None
    with pytest.raises(SettingError, match="carries no 'onnx'"):
        load(tmp_path / "model", runtime="onnx")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda arrays, noted: arrays.update({"runtime.onnx": np.zeros(9, np.uint8)}), "not an ONNX graph"),
        (lambda arrays, noted: arrays.update({"runtime.onnx": np.zeros(9)}), "not an ONNX graph"),
        (lambda arrays, noted: arrays.pop("runtime.onnx"), "KeyError"),
        (lambda arrays, noted: noted.update(widths=[64, 31]), "a head of"),
        (lambda arrays, noted: noted.update(widths=[64]), "run an encoder"),
        (lambda arrays, noted: noted.update(fastest=["onnx"]), "run an encoder"),
        (lambda arrays, noted: noted.update(fastest=["onnx", "sh", "torch"]), "KeyError"),
        (lambda arrays, noted: noted.update(fastest=7), "TypeError"),
    ],
)
def test_graphs_that_do_not_fit_are_refused(carrying, tmp_path, change, says):
    manifest, arrays, strings = load_folder(carrying[0])
    arrays, values = dict(arrays), dict(manifest.values)
    noted = values["runtimes"] = dict(values["runtimes"])
    change(arrays, noted)
    rest = {"kind": manifest.kind, "settings": manifest.settings, "n_labels": manifest.n_labels}
    save_folder(
        tmp_path / "model", **rest, arrays=arrays, strings=strings, values=values, derived=manifest.derived
    )
    with pytest.raises(ModelFolderError, match=says):
        load(tmp_path / "model", runtime="onnx")


# What is imported -----------------------------------------------------------------------------------------


def alone(code, *arguments):
    """Run this in a process of its own; its output."""
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)], capture_output=True, text=True, timeout=300
    )
    assert not done.returncode, done.stderr
    return done.stdout.strip()


def test_graphs_need_no_torch(carrying):
    code = """if True:
        import sys
        sys.modules["torch"] = sys.modules["transformers"] = None
        from xmcascade import load
        model = load(sys.argv[1], threads=1, runtime="onnx")
        print(model.predict(sys.argv[2:], k=1)[0][0].label)
    """
    wanted = load(carrying[0], threads=1, runtime="torch").predict([TEXTS[0]], k=1)[0][0].label
    assert alone(code, carrying[0], TEXTS[0]) == wanted


def test_torch_needs_no_onnx(carrying):
    code = """if True:
        import sys
        sys.modules["onnxruntime"] = None
        from xmcascade import XmcError, load
        model = load(sys.argv[1], threads=1)
        assert model.predict(["a text"])
        assert "onnx" not in sys.modules
        try:
            load(sys.argv[1], threads=1, runtime="onnx")
        except XmcError as error:
            print(model.runtime, error)
    """
    said = alone(code, carrying[0])
    assert said == "torch onnxruntime is not installed. Remedy: pip install 'xmcascade[onnx]'"
