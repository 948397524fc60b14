"""`xmcascade export`: a model's encoder as a graph for another runtime, once its answers are the same."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

from typer import Option

from xmcascade.cli.common import AsJson, ModelFolder, Threads, reads, report_left_out, say, show
from xmcascade.corpus import ReadSettings, load_corpus

__all__ = ["export"]


@reads
def export(
    model: ModelFolder,
    runtime: Annotated[str, Option(help="What is to run the encoder: onnx or onnx-int8.")],
    data: Annotated[
        str | None,
        Option(help="Documents like those to come, to compare on [default: texts of labels' names]."),
    ] = None,
    threads: Threads = None,
    as_json: AsJson = False,
    *,
    reading: ReadSettings,
) -> None:
    """Add a graph of the encoder to a model folder, if it finds the same labels; the fastest is used.

    Example: xmcascade export my-model --runtime onnx --data new-products.csv --text title
    """
    from xmcascade.models import export_runtime, load

    corpus = None
    if data is not None:
        corpus = load_corpus(data, "test", reading, need_labels=False)
        report_left_out(corpus)
    fitted = load(model, threads=threads, runtime="torch")
    report = export_runtime(fitted, runtime, corpus)  # type: ignore[arg-type]
    fitted.save(model)
    if as_json:
        show(asdict(report), as_json)
        return
    say(f"{report.n_docs:,} documents: {report.agreement:.2%} of the 5 best labels are those of torch,")
    say(f"all five for {report.identical:.2%} of the documents")
    for name, milliseconds in report.milliseconds.items():
        say(f"{name}: {milliseconds:,.1f} ms a document{', used from now on' * (name == report.default)}")
    say(f"{model} is {report.n_bytes / 2**20:,.1f} MiB larger")
