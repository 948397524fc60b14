"""An encoder as an ONNX graph: written, rounded to 8 bits, checked as what anybody may have written, run.

Documents of one length are read together, so a graph knows no padding: token ids [B, T] go in, the pooled
features of each level come out.
"""

from __future__ import annotations

import io
import os
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from xmcascade.errors import SettingError, XmcError
from xmcascade.neural import extra
from xmcascade.neural.encoder import Encoder
from xmcascade.neural.reader import Reader, own_threads
from xmcascade.neural.tokens import TokenStore, of_one_length, padded
from xmcascade.progress import tracker

__all__ = ["Graph", "quantised", "written"]

OPSET = 17  # the first with LayerNormalization
DOCS_AT_ONCE = 8  # more are not faster, and scores of all pairs of tokens take memory
TOLERANCE = 1e-3  # of the largest feature
WEIGHT_STEPS = 64  # AVX2 adds two products in 16 bits: weights of 7 bits cannot overflow them
INPUT_STEPS = 127
QUIET = {
    "session.intra_op.allow_spinning": "0",  # threads without work sleep
    "session.disable_quant_qdq": "1",  # what is rounded where is our choice
}


# Writing --------------------------------------------------------------------------------------------------


def written(reader: Reader, max_tokens: int) -> bytes:
    """The graph of a reader, for documents of up to so many tokens; tried on a few before it is returned.

    >>> reader = Reader(Encoder.load("minilm"), ((1, 2), (3,)), "mean")
    >>> graph = Graph(np.frombuffer(written(reader, 32), np.uint8), reader.widths)
    >>> [features.shape for features in graph.read(TokenStore(np.array([101, 102]), np.array([0, 2])), 1)]
    [(1, 768), (1, 384)]
    """
    encoder = reader.encoder
    assert isinstance(encoder, Encoder)
    try:
        graph = _traced(encoder, reader, max_tokens)
        worst = max(_errors(Graph(np.frombuffer(graph, np.uint8), reader.widths), reader, max_tokens))
        if not worst < TOLERANCE:
            raise ValueError(f"features differ by {worst:.1e} of the largest")
    except Exception as error:  # of two libraries, and of many kinds
        why = f"{type(error).__name__}: {' '.join(str(error).split()):.200}"
        what = f"encoders of the family {encoder.family!r} cannot be written as a graph ({why})"
        raise SettingError(what, remedy="use the runtime torch") from error
    return graph


def _traced(encoder: Encoder, reader: Reader, max_tokens: int) -> bytes:
    """What torch writes as it reads two documents."""
    torch, onnx, file = extra.torch(), extra.needed("onnx", "onnx"), io.BytesIO()

    class Features(torch.nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.model = encoder.model

        def forward(self, ids: Any) -> Any:
            real = torch.ones_like(ids, dtype=torch.bool)
            return tuple(encoder.features(ids, real, reader.reads, reader.pooling))

    names = [f"level{t}" for t in range(len(reader.reads))]
    axes = {"ids": {0: "B", 1: "T"}, **{name: {0: "B"} for name in names}}
    # The longest documents: where a family leaves out its windows for short ones, they would be missing.
    ids = _some_ids(encoder, 2, max_tokens)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            Features().eval(), (ids,), file, input_names=["ids"], output_names=names, dynamic_axes=axes,
            opset_version=OPSET, dynamo=False,  # the other way takes ten times as long for a slower graph
        )  # fmt: skip
    model = onnx.load_from_string(file.getvalue())
    for output, width in zip(model.graph.output, reader.widths, strict=True):
        output.type.tensor_type.shape.dim[1].dim_value = width
    return bytes(model.SerializeToString(deterministic=True))


def _some_ids(encoder: Encoder, n_docs: int, n_tokens: int) -> Any:
    torch = extra.torch()
    return (torch.arange(n_docs * n_tokens) * 7919 % encoder.embeddings.num_embeddings).reshape(n_docs, -1)


def _errors(graph: Graph, reader: Reader, max_tokens: int) -> Iterator[float]:
    """How far a graph's features are from torch's, in shares of the largest, at several lengths."""
    assert isinstance(reader.encoder, Encoder)
    for n_docs, n_tokens in (1, 1), (1, 2), (3, 7), (1, max_tokens // 2), (2, max_tokens):
        ids = _some_ids(reader.encoder, n_docs, max(1, min(n_tokens, max_tokens)))
        with extra.torch().inference_mode():
            right = reader.encoder.features(ids, ids >= 0, reader.reads, reader.pooling)
        for found, wanted in zip(graph.features(ids.numpy(), 1), right, strict=True):
            yield float(np.abs(found - wanted.numpy()).max() / max(1e-6, float(wanted.abs().max())))


def quantised(graph: bytes) -> bytes:
    """The graph with products of 8-bit numbers: weights are rounded by column, what they meet by row.

    A row is a token, so what a document gets still depends on itself alone. (onnxruntime's own way takes one
    scale for all tokens of a batch: neighbours then change an answer, and features are further off.)

    >>> reader = Reader(Encoder.load("minilm"), ((1,),), "mean")
    >>> whole = written(reader, 32)
    >>> len(quantised(whole)) < len(whole)
    True
    """
    onnx = extra.needed("onnx", "onnx")
    node, array = onnx.helper.make_node, onnx.numpy_helper.from_array
    model = onnx.load_from_string(graph)
    weights = {each.name: each for each in model.graph.initializer}
    matrices = {name for name, each in weights.items() if len(each.dims) == 2}
    constants = {"least": np.float32(1e-12), "share": np.float32(1 / INPUT_STEPS), "one": np.float32(1)}
    made = [array(value, name) for name, value in {**constants, "middle": np.uint8(128)}.items()]
    nodes, rounded = [], set()
    for each in model.graph.node:
        if each.op_type != "MatMul" or each.input[1] not in matrices:
            nodes.append(each)
            continue
        (x, w), (out,) = each.input, each.output
        if x not in rounded:
            rounded.add(x)
            nodes += [
                node("Abs", [x], [f"{x}.size"]),
                node("ReduceMax", [f"{x}.size"], [f"{x}.largest"], axes=[-1]),
                node("Max", [f"{x}.largest", "least"], [f"{x}.positive"]),
                node("Mul", [f"{x}.positive", "share"], [f"{x}.step"]),
                node("Div", [x, f"{x}.step"], [f"{x}.steps"]),
                node("QuantizeLinear", [f"{x}.steps", "one", "middle"], [f"{x}.rounded"]),
            ]
        if f"{w}.rounded" not in rounded:
            rounded.add(f"{w}.rounded")
            values = onnx.numpy_helper.to_array(weights[w])
            step = np.maximum(np.abs(values).max(0), 1e-12) / np.float32(WEIGHT_STEPS)
            made += [array(np.round(values / step).astype(np.int8), f"{w}.rounded"), array(step, f"{w}.step")]
        nodes += [
            node("MatMulInteger", [f"{x}.rounded", f"{w}.rounded", "middle"], [f"{out}.whole"]),
            node("Cast", [f"{out}.whole"], [f"{out}.number"], to=onnx.TensorProto.FLOAT),
            node("Mul", [f"{out}.number", f"{w}.step"], [f"{out}.columns"]),
            node("Mul", [f"{out}.columns", f"{x}.step"], [out]),
        ]
    used = {name for each in nodes for name in each.input}
    kept = [each for name, each in weights.items() if name in used]
    del model.graph.node[:], model.graph.initializer[:]
    model.graph.node.extend(nodes)
    model.graph.initializer.extend(kept + made)
    return bytes(model.SerializeToString(deterministic=True))


# Checking -------------------------------------------------------------------------------------------------


def _check(raw: npt.NDArray[np.uint8], widths: Sequence[int]) -> None:
    """Raise ValueError unless this is a graph from token ids to features, whole and of plain operations."""
    onnx = extra.needed("onnx", "onnx")
    model = onnx.ModelProto()
    try:
        model.ParseFromString(raw.data)
    except Exception as error:  # of a library that onnx only builds on
        raise ValueError(f"not an ONNX graph: {error!s:.100}") from error
    graph, attributes = model.graph, [a for each in model.graph.node for a in each.attribute]
    domains = {each.domain for each in (*model.opset_import, *graph.node)} - {"", "ai.onnx"}
    if domains or len(model.functions) or len(model.training_info):
        raise ValueError(f"a graph with operations of its own ({', '.join(sorted(domains)):.60})")
    if any(a.HasField("g") or len(a.graphs) or a.HasField("sparse_tensor") for a in attributes):
        raise ValueError("a graph within a graph")
    tensors = [*graph.initializer, *(a.t for a in attributes), *(t for a in attributes for t in a.tensors)]
    if len(graph.sparse_initializer) or any(len(t.external_data) or t.data_location for t in tensors):
        raise ValueError("a graph whose weights are elsewhere")
    kinds = onnx.TensorProto
    found = [_shape(each) for each in (*graph.input, *graph.output)]
    right = [(kinds.INT64, (0, 0)), *((kinds.FLOAT, (0, width)) for width in widths)]
    if found != right or len(graph.input) != 1:
        raise ValueError(f"a graph of {found!s:.200}, not {right!s:.200}")


def _shape(value: Any) -> tuple[int, tuple[int, ...]]:
    kind = value.type.tensor_type
    return kind.elem_type, tuple(axis.dim_value for axis in kind.shape.dim)  # 0: any


# Running --------------------------------------------------------------------------------------------------


class Graph:
    """A graph that onnxruntime runs on the CPU; made of bytes that are checked first.

    >>> Graph(np.zeros(0, np.uint8), [384])
    Traceback (most recent call last):
    ...
    ValueError: a graph of [], not [(7, (0, 0)), (1, (0, 384))]
    """

    def __init__(self, raw: npt.NDArray[np.uint8], widths: Sequence[int], threads: int = 1) -> None:
        """Raises ValueError when it is no graph from token ids to features of these widths."""
        _check(raw, widths)
        self.raw, self.widths = raw, list(widths)
        self._sessions: dict[tuple[int, int], Any] = {}
        self._session(threads)

    def read(self, tokens: TokenStore, threads: int) -> list[npt.NDArray[np.float32]]:
        """Features of documents for each level; what a document gets depends on itself alone."""
        found = [np.zeros((len(tokens), width), np.float32) for width in self.widths]
        with tracker("reading", len(tokens)) as seen:
            for docs in of_one_length(tokens.lengths, DOCS_AT_ONCE):
                if tokens.lengths[docs[0]]:  # no token, no features
                    ids, _ = padded(tokens, docs, 0)
                    for own, part in zip(found, self.features(ids, threads), strict=True):
                        own[docs] = part
                seen.advance(len(docs))
        return found

    def features(self, ids: npt.NDArray[np.int64], threads: int) -> list[npt.NDArray[np.float32]]:
        """For each level features [B, width] of token ids [B, T]."""
        session = self._session(threads)
        try:
            found: list[npt.NDArray[np.float32]] = session.run(None, {session.get_inputs()[0].name: ids})
            if [part.shape for part in found] != [(len(ids), width) for width in self.widths]:
                raise ValueError(f"features of {[part.shape for part in found]}")
        except Exception as error:  # onnxruntime's own
            what = f"the encoder's graph cannot be run ({error!s:.200})"
            raise XmcError(what, remedy="load the model with runtime='torch', or export it again") from error
        return found

    def _session(self, threads: int) -> Any:
        process, threads = os.getpid(), own_threads(threads)
        if (process, threads) not in self._sessions:
            # A forked child keeps its parent's session: it could only wait for threads that are gone.
            kept = {key: session for key, session in self._sessions.items() if key[0] != process}
            self._sessions = {**kept, (process, threads): _started(self.raw, threads)}
        return self._sessions[process, threads]


def _started(raw: npt.NDArray[np.uint8], threads: int) -> Any:
    """A session; nothing but the graph is taken from the bytes."""
    ort = extra.needed("onnxruntime", "onnx")
    options = ort.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.log_severity_level = 4  # it would write to standard error
    for name, value in QUIET.items():
        options.add_session_config_entry(name, value)
    how = {"providers": ["CPUExecutionProvider"], "enable_fallback": 0, "read_config_from_model": 0}
    try:
        session = ort.InferenceSession(raw.tobytes(), options, **how)
    except Exception as error:
        raise ValueError(f"a graph that onnxruntime refuses: {error!s:.200}") from error
    session._model_bytes = None  # it would keep them for good
    return session
