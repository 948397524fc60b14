"""`xmcascade predict` and `evaluate`: what a model says, and how good that is."""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from typing import IO, Annotated, Any, Literal

from typer import Argument, Option

from xmcascade.cli.common import (
    AsJson,
    Data,
    ModelFolder,
    Runtime,
    Threads,
    apart,
    err,
    out,
    reads,
    report_left_out,
    say,
    show,
    table_of,
)
from xmcascade.corpus import ReadSettings, load_corpus
from xmcascade.corpus.checks import Refused, check_unicode, kind
from xmcascade.corpus.reading import joined
from xmcascade.errors import DataError, SettingError
from xmcascade.kernels.parallel import blocks

__all__ = ["evaluate", "predict", "print_evaluation"]

WRITTEN_DOCS = 4096  # predictions are written so many documents at a time
TOGETHER = 256  # lines of standard input, at most
STDIN = "-"


@reads
def predict(
    model: ModelFolder,
    data: Annotated[
        str, Argument(metavar="DATA", help="A file of documents, or - for lines of standard input.")
    ],
    k: Annotated[int | None, Option("--k", help="Labels for each document [default: 5].")] = None,
    threshold: Annotated[
        str | None, Option(help="Only labels of at least this probability, or: auto.")
    ] = None,
    to: Annotated[
        Path | None,
        Option("--out", help="File to write: .jsonl, .csv or .parquet [default: stdout]."),
    ] = None,
    threads: Threads = None,
    runtime: Runtime = None,
    as_json: AsJson = False,
    *,
    reading: ReadSettings,
) -> None:
    """Tag the documents of a file, in their order; one JSON object a line, or a table.

    Lines of standard input, plain text or JSON objects, are answered as they come.

    Example: xmcascade predict my-model new-products.csv --text title --k 3 --out tags.csv
    """
    from xmcascade.models import load
    from xmcascade.report.tagged import as_line, tagged_file

    least = _threshold(threshold)
    if to is not None:
        apart(to, data)
    fitted = load(model, threads=threads, runtime=runtime)  # type: ignore[arg-type]
    if data == STDIN:
        if sys.stdin is None:
            raise DataError("standard input is closed", remedy="give it lines, or name a file")
        documents: Iterator[tuple[list[Any], Any]] = _lines(sys.stdin.buffer, reading)
    else:
        corpus = load_corpus(data, "test", reading, need_labels=False, empty_text="keep")
        report_left_out(corpus)
        documents = (
            ([corpus.doc_id(doc) for doc in range(lo, hi)], corpus.take(range(lo, hi)))
            for lo, hi in blocks(corpus.n_docs, WRITTEN_DOCS)
        )
    start, n_docs = time.monotonic(), 0
    if to is None:
        for ids, some in documents:
            lines = map(as_line, ids, fitted.predict(some, k, threshold=least))
            sys.stdout.buffer.write(b"".join(lines))
            sys.stdout.buffer.flush()
        return
    with tagged_file(to, reading.separator, fitted.label_names) as write:
        for ids, some in documents:
            write(ids, fitted.predict(some, k, threshold=least))
            n_docs += len(ids)
    seconds = round(time.monotonic() - start, 2)
    show({"file": str(to), "documents": n_docs, "seconds": seconds}, as_json)


def _threshold(given: str | None) -> float | Literal["auto"] | None:
    if given is None or given == "auto":
        return given  # type: ignore[return-value]
    try:
        return float(given)
    except ValueError:
        raise SettingError(f"threshold is {given!r}", remedy="use a probability, 0 to 1, or auto") from None


def _lines(stream: IO[bytes], reading: ReadSettings) -> Iterator[tuple[list[Any], list[str]]]:
    """Documents of lines, as many together as have come by the time that somebody asks.

    What came before a line that cannot be read is answered first.
    """
    queue = SimpleQueue[bytes | None]()

    def listen() -> None:
        # Unbuffered: a thread that waits inside a buffer cannot be left behind when the program ends.
        raw, rest = getattr(stream, "raw", stream), b""
        while part := raw.read(1 << 16):
            *lines, rest = (rest + part).split(b"\n")
            for line in lines:
                queue.put(line)
        if rest:
            queue.put(rest)
        queue.put(None)

    Thread(target=listen, daemon=True).start()
    number, skipped, more = 0, 0, True
    while more:
        lines = [queue.get()]
        try:
            while lines[-1] is not None and len(lines) < TOGETHER:
                lines.append(queue.get_nowait())
        except Empty:
            pass
        more = lines[-1] is not None
        told, wrong = [], None
        for line in lines[: None if more else -1]:
            try:
                told.append(_document(line or b"", number, reading))
            except DataError as error:
                wrong, skipped = error, skipped + 1
                if reading.on_error == "raise":
                    break
            number += 1
        if told:
            yield [name for name, _ in told], [text for _, text in told]
        if wrong is not None and reading.on_error == "raise":
            raise wrong
    if skipped:
        err.print(f"left out: {skipped:,} lines that cannot be read")


def _document(line: bytes, number: int, reading: ReadSettings) -> tuple[Any, str]:
    where = f"line {number + 1} of standard input"
    remedy = "send UTF-8 text"
    try:
        text = line.decode().rstrip("\r\n")
        if not text.lstrip().startswith("{"):
            return number, text
        remedy = "send a JSON object, or a text that does not begin with {"
        told = json.loads(text)
        text = joined([told[name] for name in reading.text_fields])
        remedy = "send a text"
        if not isinstance(text, str):
            raise ValueError(f"the text is {kind(text)}")
        check_unicode(text, "text", reading.text)
        return told.get(reading.ids, number), text
    except (ValueError, RecursionError, Refused) as error:
        raise DataError(f"cannot be read ({error!s:.80})", where=where, remedy=remedy) from error
    except KeyError as lacking:
        what = f"has no field {lacking}"
        raise DataError(what, where=where, remedy="name the field: --text NAME") from None


@reads
def evaluate(
    model: ModelFolder,
    data: Data,
    k: Annotated[str, Option("--k", help="Ranks to evaluate at.")] = "1,3,5",
    propensity: Annotated[
        str, Option(help="Weights of rare labels: default, wikipedia or amazon.")
    ] = "default",
    normalisation: Annotated[str, Option(help="Of PSP: repository, document or none.")] = "repository",
    threads: Threads = None,
    runtime: Runtime = None,
    as_json: AsJson = False,
    *,
    reading: ReadSettings,
) -> None:
    """Compare a model's labels with the true ones: P@k, R@k, nDCG@k, PSP@k and more, in percent.

    Example: xmcascade evaluate my-model test.csv --text title --labels tags --json
    """
    from xmcascade.models import load

    if not all(part.strip().isdecimal() for part in k.split(",")):
        raise SettingError(f"k is {k!r}", remedy="write whole numbers, for example 1,3,5")
    ks = [int(part) for part in k.split(",")]
    fitted = load(model, threads=threads, runtime=runtime)  # type: ignore[arg-type]
    corpus = load_corpus(data, "test", reading, empty_text="keep")
    report_left_out(corpus)
    if corpus.n_labels and not set(corpus.label_names) & set(fitted.label_names):
        what = f"none of the {corpus.n_labels:,} labels is one that the model knows"
        remedy = "check the column (--labels), the separator, or the names of numbered labels (--label-names)"
        raise DataError(what, where=data, remedy=remedy)
    evaluation = fitted.evaluate(corpus, ks, propensity=propensity, normalisation=normalisation)
    if as_json:
        show(evaluation.to_dict(), as_json)
        return
    print_evaluation(evaluation)


def print_evaluation(evaluation: Any) -> None:
    """A table of the metrics with their intervals, and a line for each slice."""
    bounds = {name: f"{low:.2f} to {high:.2f}" for name, (low, high) in evaluation.intervals.items()}
    rows = [[name, f"{value:.2f}", bounds.get(name, "")] for name, value in evaluation.metrics.items()]
    table_of(["metric", "value", "95% interval"], rows)
    for name, values in evaluation.slices.items():
        parts = [f"{values['labels']:,.0f} labels"]
        rest = ((key, value) for key, value in values.items() if key != "labels")
        parts += [f"{key} {'-' if math.isnan(value) else f'{value:,.1f}'}" for key, value in rest]
        say(f"{name}: {', '.join(parts)}")
    out.print(
        f"{evaluation.n_docs:,} documents; {evaluation.n_unlabelled:,} without labels not counted; "
        f"{evaluation.unseen_share:.1f}% of their labels never seen in training (counted as missed)"
    )
