"""Encoders as graphs: the same features as torch's for every family, and nothing else is ever run."""

import os
import signal
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from neural.tiny import FAMILIES, TEXTS, tiny
from xmcascade.errors import SettingError, XmcError
from xmcascade.neural import Graph, Reader, TokenStore, quantised, written
from xmcascade.neural import onnx as room

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

READS = ((1, 2), (0,), (3,))
MANY = [*TEXTS, "", "dog", "a fox", "cats bark", "dog " * 30, "the sun " * 40]
every_family = pytest.mark.parametrize("family", [*FAMILIES, "minilm"])


def make(family="bert", pooling="mean", reads=READS):
    reader = Reader(tiny(family), reads, pooling)
    return reader, TokenStore.of(MANY, reader.encoder.tokenizer, 64)


def started(raw, reader, threads=1):
    return Graph(np.frombuffer(raw, np.uint8), reader.widths, threads)


@pytest.fixture(scope="module")
def exported():
    reader, tokens = make()
    return reader, tokens, written(reader, 64)


def assert_close(found, wanted, atol=1e-5):
    assert len(found) == len(wanted)
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, atol=atol, rtol=1e-5)


# Writing --------------------------------------------------------------------------------------------------


@every_family
@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_features_are_those_of_torch(family, pooling):
    reader, tokens = make(family, pooling)
    reader.encoder.set_dropout(0.5)
    reader.encoder.model.train()  # a graph knows no dropout
    graph = started(written(reader, 64), reader)
    found = graph.read(tokens, 1)
    assert [(one.dtype, one.shape) for one in found] == [(np.float32, (len(MANY), w)) for w in (32, 16, 16)]
    assert_close(found, reader.encode(tokens))


def test_the_same_reader_gives_the_same_bytes_and_no_trace_of_where(exported):
    reader, _, raw = exported
    assert written(make()[0], 64) == raw
    assert quantised(raw) == quantised(raw)
    assert not any(trace in raw for trace in (b".py", b"site-packages", bytes(Path.cwd())))
    assert not reader.encoder.model.training


def test_a_graph_that_says_something_else_is_refused(monkeypatch):
    reader, _ = make()
    honest = reader.encoder.features

    def features(ids, *rest):
        return [one + 1 if ids.shape[1] < 5 else one for one in honest(ids, *rest)]  # a branch is lost

    monkeypatch.setattr(reader.encoder, "features", features)
    with pytest.raises(SettingError, match=r"family 'bert'.*features differ by.*use the runtime torch"):
        written(reader, 64)


def test_what_cannot_be_written_is_refused(monkeypatch):
    reader, _ = make()
    monkeypatch.setattr(
        reader.encoder, "features", lambda ids, *_: [torch.linalg.eigvalsh(ids.float() @ ids.float().T)]
    )
    with pytest.raises(SettingError, match=r"family 'bert' cannot be written"):
        written(reader, 64)


# In 8 bits ------------------------------------------------------------------------------------------------


@every_family
def test_rounded_features_are_near(family):
    reader, tokens = make(family)
    found = started(quantised(written(reader, 64)), reader).read(tokens, 1)
    for one, other in zip(found, reader.encode(tokens), strict=True):
        assert np.sqrt(np.mean((one - other) ** 2) / np.mean(other**2)) < 0.1


def test_all_products_with_weights_are_of_small_numbers(exported):
    _, _, raw = exported
    model = onnx.load_from_string(quantised(raw))
    kinds = [node.op_type for node in model.graph.node]
    assert kinds.count("MatMulInteger") == 18 and kinds.count("MatMul") == 6  # 6: of queries, keys and values
    weights = {each.name: onnx.numpy_helper.to_array(each) for each in model.graph.initializer}
    small = [weights[node.input[1]] for node in model.graph.node if node.op_type == "MatMulInteger"]
    assert all(one.dtype == np.int8 and np.abs(one).max() == 64 for one in small)


def test_weights_of_zeros_and_inputs_of_zeros():
    reader, tokens = make()
    with torch.no_grad():
        reader.encoder._layers[0].intermediate.dense.weight.zero_()
        reader.encoder._layers[1].output.dense.weight[3].zero_()
        reader.encoder._layers[2].attention.self.value.weight.zero_()
        reader.encoder._layers[2].attention.self.value.bias.zero_()
    found = started(quantised(written(reader, 64)), reader).read(tokens, 1)
    assert all(np.isfinite(one).all() for one in found)


# Running --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rounded", [False, True])
def test_what_a_document_gets_depends_on_itself_alone(exported, rounded, monkeypatch):
    reader, _, raw = exported
    graph = started(quantised(raw) if rounded else raw, reader)
    tokens = TokenStore.of([*MANY, *("dog fox " * n for n in (3, 3, 3, 9, 9))], reader.encoder.tokenizer, 64)
    together = graph.read(tokens, 1)
    monkeypatch.setattr(room, "DOCS_AT_ONCE", 1)
    assert_close(graph.read(tokens, 1), together)
    assert_close(graph.read(tokens, 2), together)


def test_documents_without_tokens_have_no_features(exported):
    reader, _, raw = exported
    found = started(raw, reader).read(TokenStore(np.array([5, 6]), np.array([0, 0, 2])), 1)
    assert not any(one[0].any() for one in found) and all(one[1].any() for one in found)
    assert [one.shape for one in started(raw, reader).read(TokenStore(np.array([5]), np.array([0])), 1)] == [
        (0, 32),
        (0, 16),
        (0, 16),
    ]


def test_threads_of_a_caller_do_not_mix(exported):
    reader, tokens, raw = exported
    graph, found = started(raw, reader), {}
    wanted = graph.read(tokens, 1)

    def work(i):
        for _ in range(5):
            found[i] = graph.read(tokens, 1 + i % 2)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for i in range(6):
        assert_close(found[i], wanted)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_reads(exported):
    reader, tokens, raw = exported
    graph = started(raw, reader, threads=2)
    wanted = graph.read(tokens, 2)
    child = os.fork()
    if child == 0:
        right = False
        try:
            right = all(map(np.allclose, graph.read(tokens, 2), wanted))
        finally:
            os._exit(0 if right else 1)
    until = time.monotonic() + 60
    while (done := os.waitpid(child, os.WNOHANG))[0] == 0:
        if time.monotonic() > until:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            pytest.fail("the child hangs")
        time.sleep(0.01)
    assert os.waitstatus_to_exitcode(done[1]) == 0


def test_tokens_that_the_encoder_does_not_know_are_refused(exported):
    reader, _, raw = exported
    with pytest.raises(XmcError, match=r"cannot be run.*runtime='torch'"):
        started(raw, reader).read(TokenStore(np.array([60_000]), np.array([0, 1])), 1)


# Bytes of anybody -----------------------------------------------------------------------------------------


def elsewhere(model):
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="/etc/passwd")


def elsewhere_in_a_constant(model):
    constant = next(node for node in model.graph.node if node.op_type == "Constant")
    constant.attribute[0].t.external_data.add(key="location", value="secrets")


def of_its_own(model):
    model.graph.node[5].domain = "evil.ops"


def imports_its_own(model):
    model.opset_import.add(domain="com.microsoft", version=1)


def with_a_function(model):
    model.functions.add(name="Surprise", domain="")


def with_a_loop(model):
    body = onnx.helper.make_graph([], "body", [], [])
    model.graph.node.append(onnx.helper.make_node("Loop", ["", ""], [], body=body))


def of_two_inputs(model):
    model.graph.input.add().CopyFrom(model.graph.input[0])
    model.graph.input[1].name = "more"


def of_words(model):
    model.graph.input[0].type.tensor_type.elem_type = onnx.TensorProto.STRING


def of_one_level(model):
    del model.graph.output[1:]


def of_doubles(model):
    model.graph.output[0].type.tensor_type.elem_type = onnx.TensorProto.DOUBLE


def of_another_width(model):
    model.graph.output[0].type.tensor_type.shape.dim[1].dim_value = 31


def sparse(model):
    model.graph.sparse_initializer.add()


def training(model):
    model.training_info.add()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (elsewhere, "weights are elsewhere"),
        (elsewhere_in_a_constant, "weights are elsewhere"),
        (of_its_own, "operations of its own .evil.ops"),
        (imports_its_own, "operations of its own .com.microsoft"),
        (with_a_function, "operations of its own"),
        (training, "operations of its own"),
        (with_a_loop, "a graph within a graph"),
        (sparse, "weights are elsewhere"),
        (of_two_inputs, "a graph of"),
        (of_words, "a graph of"),
        (of_one_level, "a graph of"),
        (of_doubles, "a graph of"),
        (of_another_width, "a graph of"),
    ],
)
def test_other_graphs_are_refused_before_anything_runs(exported, change, says, monkeypatch):
    reader, _, raw = exported
    model = onnx.load_from_string(raw)
    change(model)
    monkeypatch.setattr(room, "_started", lambda *_: pytest.fail("a session was made"))
    with pytest.raises(ValueError, match=says):
        started(model.SerializeToString(), reader)


@pytest.mark.parametrize("share", [0.0, 0.01, 0.3, 0.9, 0.999])
def test_damaged_bytes_are_refused(exported, share):
    reader, _, raw = exported
    with pytest.raises(ValueError, match=r"graph"):
        started(raw[: int(share * len(raw))], reader)
    with pytest.raises(ValueError, match=r"graph"):
        started(b"\xff" * 1000, reader)


def test_a_graph_that_cannot_be_run_is_refused(exported):
    reader, _, raw = exported
    model = onnx.load_from_string(raw)
    model.graph.node[5].op_type = "NoSuchThing"
    with pytest.raises(ValueError, match=r"onnxruntime refuses"):
        started(model.SerializeToString(), reader)


def test_features_of_another_shape_than_promised_are_refused(exported):
    reader, tokens, raw = exported
    model = onnx.load_from_string(raw)
    model.graph.output[1].name, model.graph.output[0].name = "first", "level1"
    model.graph.node.append(onnx.helper.make_node("ReduceSum", ["level0"], ["first"], keepdims=1))
    with pytest.raises((ValueError, XmcError), match=r"refuses|cannot be run"):
        started(model.SerializeToString(), reader).read(tokens, 1)
