"""The command line: parse, call, print. Everything it can do, the library can do.

Answers go to standard output, as a table or with --json as one object; progress to standard error.
Exit codes: 0 done, 1 an error said in one line, 2 wrong usage, 70 a fault of ours, 130 interrupted.
"""

from __future__ import annotations

import functools
import inspect
import json
import logging
import math
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.logging import RichHandler
from rich.table import Table
from typer import Argument, Option

from xmcascade import __version__
from xmcascade.corpus import BUILT_IN, Corpus, ReadSettings, load_corpus, write_corpus
from xmcascade.errors import SettingError, XmcError
from xmcascade.kernels.parallel import blocks
from xmcascade.progress import set_console

__all__ = ["app", "main"]

app = typer.Typer(
    name="xmcascade",
    help="Tag texts with the right few of up to millions of labels.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    add_completion=False,
)
corpus_app = typer.Typer(
    help="Look at, convert and build corpora.", no_args_is_help=True, rich_markup_mode=None
)
app.add_typer(corpus_app, name="corpus")

out = Console(soft_wrap=True, highlight=False)
err = Console(stderr=True, highlight=False)

WRITTEN_DOCS = 4096  # predictions are written so many documents at a time

READING = {
    "text": (str, "text", "--text", "Field or column of the text."),
    "labels": (str, "labels", "--labels", "Field or column of the labels."),
    "ids": (str, "id", "--ids", "Field or column of the documents' ids."),
    "separator": (str | None, None, "--separator", "Between labels in one string [default: ; in tables]."),
    "format": (str | None, None, "--format", "File format, where its name does not tell it."),
    "labels_file": (str | None, None, "--labels-file", "File of label lines beside raw texts."),
    "label_names": (str | None, None, "--label-names", "File of label names, for numbered labels."),
    "on_error": (
        str,
        "raise",
        "--on-error",
        "raise: stop at the first bad document; skip: leave it out, and count.",
    ),
}

Data = Annotated[str, Argument(metavar="DATA", help=f"A file of documents, or: {', '.join(BUILT_IN)}.")]
ModelFolder = Annotated[Path, Argument(metavar="MODEL", help="A model folder.")]
AsJson = Annotated[bool, Option("--json", help="Print one JSON object.")]
Threads = Annotated[int | None, Option(help="Threads to use [default: all cores].")]


def reads(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of READING, and their values as one ReadSettings."""

    @functools.wraps(command)
    def wrapper(**given: Any) -> None:
        values = {name: given.pop(name) for name in READING}
        command(**given, reading=ReadSettings(**values))

    own = inspect.signature(command, eval_str=True).parameters.values()
    added = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=default,
            annotation=Annotated[kind, Option(flag, help=text)],
        )
        for name, (kind, default, flag, text) in READING.items()
    ]
    parameters = [
        parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for parameter in own
        if parameter.name != "reading"
    ]
    wrapper.__signature__ = inspect.Signature([*parameters, *added])  # type: ignore[attr-defined]
    return wrapper


def _show(values: dict[str, Any], as_json: bool) -> None:
    """One answer: a JSON object, or a line for each of its plain values."""
    if as_json:
        _say(json.dumps(values, ensure_ascii=False))
        return
    plain = {name: value for name, value in values.items() if not isinstance(value, (dict, list))}
    width = max(map(len, plain))
    for name, value in plain.items():
        number = (
            f"{value:,.2f}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else value
        )
        _say(f"{name:{width}}  {number}")


def _say(line: str) -> None:
    out.print(line, markup=False)


def _report_left_out(corpus: Corpus) -> None:
    for found in corpus.left_out:
        err.print(f"left out: {found.count:,} x {found.reason} (first: {found.first})", markup=False)


@app.command()
@reads
def train(
    data: Data,
    model: Annotated[str, Option("--model", help="The method.")] = "nearest",
    to: Annotated[Path, Option("--out", help="Folder to save the model in.")] = Path("model"),
    preset: Annotated[str | None, Option(help="Settings by name, as a paper has them.")] = None,
    set_values: Annotated[
        list[str] | None, Option("--set", help="A setting: name=value or part.name=value.")
    ] = None,
    label_texts: Annotated[
        str | None, Option(help="File of texts that tell of labels, read like DATA: each with its label.")
    ] = None,
    checkpoint: Annotated[
        Path | None, Option(help="Keep unfinished work here; the same command goes on.")
    ] = None,
    threads: Threads = None,
    as_json: AsJson = False,
    *,
    reading: ReadSettings,
) -> None:
    """Train a model and save it as a folder.

    Example: xmcascade train products.csv --text title --labels tags --out my-model
    """
    from xmcascade.models import MODELS
    from xmcascade.store import check_target

    if model not in MODELS:
        raise SettingError(f"there is no model {model!r}", remedy=f"the models are: {', '.join(MODELS)}")
    kind = MODELS[model]
    if preset is not None and preset not in kind.presets:
        known = ", ".join(kind.presets) or f"none for {model}"
        raise SettingError(f"there is no preset {preset!r}", remedy=f"the presets are: {known}")
    settings = kind.presets[preset] if preset is not None else kind.settings_type()
    settings = settings.with_text(set_values or [])
    if checkpoint is not None:
        _check_apart(checkpoint, to)
    check_target(to)
    corpus = load_corpus(data, "train", reading)
    _report_left_out(corpus)
    if label_texts is not None:
        told = load_corpus(label_texts, "train", reading)
        _report_left_out(told)
        corpus = corpus.with_label_texts(told)
    start = time.monotonic()
    with _kept_in(checkpoint):
        fitted = kind(settings, threads=threads).fit(corpus, checkpoint=checkpoint)
    seconds = time.monotonic() - start
    fitted.save(to)
    values = {"model": model, "folder": str(to), "documents": corpus.n_docs, "labels": fitted.n_labels}
    _show({**values, "seconds": round(seconds, 2), "derived": fitted.derived}, as_json)


def _check_apart(checkpoint: Path, to: Path) -> None:
    work, model = checkpoint.resolve(), to.resolve()
    if work.is_relative_to(model) or model.is_relative_to(work):
        relation = "are the same folder" if work == model else "lie in one another"
        what = f"the checkpoint {checkpoint} and the model {to} {relation}"
        raise SettingError(what, remedy="give --checkpoint a folder of its own")


class _Stopped(Exception):
    """Ctrl-C during work that is kept."""


@contextmanager
def _kept_in(checkpoint: Path | None) -> Iterator[None]:
    """After Ctrl-C, say where the work done so far is kept."""
    try:
        yield
    except BaseException as error:
        if checkpoint is None or not checkpoint.exists() or not _is_interrupt(error):
            raise
        what = f"interrupted; what is finished is kept in {checkpoint}: run the same command again to go on"
        raise _Stopped(what) from error


def _is_interrupt(error: BaseException | None) -> bool:
    if error is None or isinstance(error, KeyboardInterrupt):
        return error is not None
    return _is_interrupt(error.__cause__) or _is_interrupt(error.__context__)  # compiled code wraps it


@app.command()
@reads
def predict(
    model: ModelFolder,
    data: Data,
    k: Annotated[int, Option("--k", help="Labels for each document.")] = 5,
    to: Annotated[
        Path | None, Option("--out", help="File to write: .jsonl, also .gz, .xz, .zst [default: stdout].")
    ] = None,
    threads: Threads = None,
    as_json: AsJson = False,
    *,
    reading: ReadSettings,
) -> None:
    """Tag the documents of a file: one JSON object a line, in the order of the file.

    Example: xmcascade predict my-model new-products.csv --text title --k 3 --out tags.jsonl
    """
    from xmcascade.models import load
    from xmcascade.store.files import replacing_file

    fitted = load(model, threads=threads)
    corpus = load_corpus(data, "test", reading, need_labels=False, empty_text="keep")
    _report_left_out(corpus)
    start = time.monotonic()
    if to is None:
        _write_predictions(fitted, corpus, k, sys.stdout.buffer)
        return
    with replacing_file(to) as stream:
        _write_predictions(fitted, corpus, k, stream)
    seconds = round(time.monotonic() - start, 2)
    _show({"file": str(to), "documents": corpus.n_docs, "seconds": seconds}, as_json)


def _write_predictions(fitted: Any, corpus: Corpus, k: int, stream: Any) -> None:
    for lo, hi in blocks(corpus.n_docs, WRITTEN_DOCS):
        for doc, predictions in enumerate(fitted.predict(corpus.take(range(lo, hi)), k), lo):
            found = [prediction._asdict() for prediction in predictions]
            line = json.dumps({"id": corpus.doc_id(doc), "predictions": found}, ensure_ascii=False)
            stream.write(line.encode() + b"\n")
        stream.flush()


@app.command()
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
    fitted = load(model, threads=threads)
    corpus = load_corpus(data, "test", reading, empty_text="keep")
    _report_left_out(corpus)
    evaluation = fitted.evaluate(corpus, ks, propensity=propensity, normalisation=normalisation)
    if as_json:
        _show(evaluation.to_dict(), as_json)
        return
    print_evaluation(evaluation)


def print_evaluation(evaluation: Any) -> None:
    """A table of the metrics with their intervals, and one of the slices."""
    table = Table("metric", "value", "95% interval", box=None)
    for column in table.columns[1:]:
        column.justify = "right"
    for name, value in evaluation.metrics.items():
        low, high = evaluation.intervals.get(name, (None, None))
        table.add_row(name, f"{value:.2f}", "" if low is None else f"{low:.2f} to {high:.2f}")
    out.print(table)
    for name, values in evaluation.slices.items():
        line = ", ".join(
            f"{key} {'-' if math.isnan(value) else f'{value:,.1f}'}"
            if key != "labels"
            else f"{value:,.0f} labels"
            for key, value in values.items()
        )
        _say(f"{name}: {line}")
    out.print(
        f"{evaluation.n_docs:,} documents; {evaluation.n_unlabelled:,} without labels not counted; "
        f"{evaluation.unseen_share:.1f}% of their labels never seen in training (counted as missed)"
    )


@corpus_app.command("stats")
@reads
def corpus_stats(data: Data, as_json: AsJson = False, *, reading: ReadSettings) -> None:
    """Count documents, labels and words, and say what is wrong with the file.

    Example: xmcascade corpus stats products.csv --text title --labels tags
    """
    corpus = load_corpus(data, "train", reading, on_error="skip", empty_text="keep")
    problems = {found.reason: {"count": found.count, "first": found.first} for found in corpus.left_out}
    _show({**corpus.stats(), "left out": problems}, as_json)
    if not as_json:
        _report_left_out(corpus)


@corpus_app.command("convert")
@reads
def corpus_convert(
    data: Data,
    to: Annotated[
        Path, Argument(metavar="OUT", help="File to write: .jsonl (also .gz, .xz, .zst) or .parquet.")
    ],
    as_json: AsJson = False,
    *,
    reading: ReadSettings,
) -> None:
    """Read a corpus in any format and write it as JSON Lines or Parquet.

    Example: xmcascade corpus convert train_raw_texts.txt train.parquet
    """
    corpus = load_corpus(data, "train", reading, empty_text="keep")
    _report_left_out(corpus)
    write_corpus(corpus, to)
    _show({"file": str(to), "documents": corpus.n_docs, "labels": corpus.n_labels}, as_json)


@corpus_app.command("build")
def corpus_build(
    name: Annotated[str, Argument(metavar="NAME", help=f"One of: {', '.join(BUILT_IN)}.")],
    to: Annotated[
        Path | None, Option("--out", help="Folder for train.jsonl and test.jsonl [default: NAME].")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Build a corpus that every installation carries, and write it as two files.

    Example: xmcascade corpus build docstrings --out docstrings
    """
    if name not in BUILT_IN:
        raise SettingError(
            f"there is no built-in corpus {name!r}", remedy=f"choose from: {', '.join(BUILT_IN)}"
        )
    train_part, test_part = BUILT_IN[name]()
    to = to or Path(name)
    write_corpus(train_part, to / "train.jsonl")
    write_corpus(test_part, to / "test.jsonl")
    sizes = {"train documents": train_part.n_docs, "test documents": test_part.n_docs}
    _show({"folder": str(to), **sizes, "labels": train_part.n_labels}, as_json)


def _version(shown: bool) -> None:
    if shown:
        out.print(f"xmcascade {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
    quiet: Annotated[bool, Option("--quiet", "-q", help="No progress, only warnings.")] = False,
) -> None:
    """Tag texts with the right few of up to millions of labels."""
    handler: logging.Handler = logging.StreamHandler()
    if err.is_terminal:
        handler = RichHandler(console=err, show_time=False, show_level=False, show_path=False, markup=False)
    log = logging.getLogger("xmcascade")
    log.handlers = [handler]
    log.setLevel(logging.WARNING if quiet else logging.INFO)
    set_console(err if err.is_terminal and not quiet else None)


def main() -> None:
    """Run the command line; every refusal is one line on standard error."""
    code, interrupted = 70, "interrupted; nothing half-written is left"
    try:
        code = app(standalone_mode=False) or 0  # Ctrl-C comes back as 130
        sys.stdout.flush()
    except XmcError as error:
        _complain(str(error))
        code = 1
    except _Stopped as error:
        code, interrupted = 130, str(error)
    except SystemExit:  # who reads our output has seen enough
        _mute()
        code = 0
    except OSError as error:
        _mute()
        _complain(f"the output cannot be written ({error.strerror}). Remedy: check where it goes")
        code = 1
    except Exception as error:
        if _is_interrupt(error):
            code = 130
        elif not hasattr(error, "exit_code"):
            if os.environ.get("XMCASCADE_DEBUG"):
                raise
            _complain(f"a fault of ours: {error!r}. Remedy: set XMCASCADE_DEBUG=1 and report it")
        else:  # wrong usage
            error.show()  # type: ignore[attr-defined]
            code = error.exit_code
    if code == 130:
        _complain(interrupted)
    sys.exit(code)


def _complain(message: str) -> None:
    err.print(f"xmcascade: {message}", markup=False, soft_wrap=True)


def _mute() -> None:
    """Nothing more can be written: let Python's own last flush go nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
