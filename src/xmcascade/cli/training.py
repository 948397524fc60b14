"""`xmcascade train`: the plan first, then the work, and a folder with the model."""

from __future__ import annotations

import json
import logging
import time
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.table import Table
from typer import Option

from xmcascade.cli.common import AsJson, Data, Threads, apart, err, reads, report_left_out, show
from xmcascade.corpus import ReadSettings, load_corpus
from xmcascade.errors import DataError, SettingError

__all__ = ["Stopped", "is_interrupt", "kept_in", "train"]

SETTINGS = "settings"  # the table of a config file whose names are the model's
QUICK, USUAL = "xr-linear", "cascadexml-tfidf"  # models by effort


def _configured(context: typer.Context, path: Path | None) -> Path | None:
    """Let a file's values stand where the command line says nothing."""
    if path is None:
        return None
    try:
        told = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"cannot be read ({error})", where=str(path), remedy="give a TOML file") from error
    options = {
        name.lstrip("-").replace("-", "_"): parameter.name
        for parameter in context.command.params
        for name in parameter.opts
        if name.startswith("--") and name not in ("--config", "--set")
    }
    tables = {name: told.pop(name, {}) for name in (SETTINGS, "reading")}
    for name, table in tables.items():
        if not isinstance(table, dict):
            what = f"{name} is {table!r:.40}, not a table"
            raise SettingError(what, where=str(path), remedy=f"write [{name}], and its values below")
    context.meta[SETTINGS] = tables[SETTINGS]
    flat = {**told, **tables["reading"]}
    for name in flat:
        if name not in options:
            what = f"there is no option {name!r}"
            known = f"{', '.join(sorted(options))}, or a table [settings]"
            raise SettingError(what, where=str(path), remedy=f"the options are: {known}")
    context.default_map = {options[name]: value for name, value in flat.items()}
    return path


@reads
def train(
    context: typer.Context,
    data: Data,
    model: Annotated[
        str | None,
        Option("--model", help=f"The method [default: {USUAL}; {QUICK} with --effort fast]."),
    ] = None,
    to: Annotated[Path, Option("--out", help="Folder to save the model in.")] = Path("model"),
    effort: Annotated[
        str | None, Option(help="How much work: fast, balanced or best [default: balanced].")
    ] = None,
    minutes: Annotated[float | None, Option(help="About how long training may take.")] = None,
    preset: Annotated[str | None, Option(help="Settings by name, as a paper has them.")] = None,
    config: Annotated[
        Path | None,
        Option(
            help="A TOML file: options of this command by name, and a table [settings].",
            callback=_configured,
            is_eager=True,
        ),
    ] = None,
    set_values: Annotated[
        list[str] | None, Option("--set", help="A setting: name=value or part.name=value.")
    ] = None,
    label_texts: Annotated[
        str | None, Option(help="File of texts that tell of labels, read like DATA: each with its label.")
    ] = None,
    checkpoint: Annotated[
        Path | None, Option(help="Keep unfinished work here; the same command goes on.")
    ] = None,
    events: Annotated[Path | None, Option(help="Write what happens to this file, JSON Lines.")] = None,
    tensorboard: Annotated[Path | None, Option(help="Write curves for TensorBoard to this folder.")] = None,
    threads: Threads = None,
    as_json: AsJson = False,
    *,
    reading: ReadSettings,
) -> None:
    """Train a model and save it as a folder; what will be done is said first.

    Example: xmcascade train products.csv --text title --labels tags --out my-model
    """
    from xmcascade.models import MODELS
    from xmcascade.report.events import recorded
    from xmcascade.store import check_target

    model = model or _usual(effort)
    if model not in MODELS:
        raise SettingError(f"there is no model {model!r}", remedy=f"the models are: {', '.join(MODELS)}")
    kind = MODELS[model]
    settings = _settings(kind, preset, effort, context.meta.get(SETTINGS, {}), set_values or [])
    if checkpoint is not None:
        _check_apart(checkpoint, to)
    check_target(to)
    if events is not None:
        apart(events, data, label_texts)
    corpus = load_corpus(data, "train", reading)
    report_left_out(corpus)
    if label_texts is not None:
        told = load_corpus(label_texts, "train", reading)
        report_left_out(told)
        corpus = corpus.with_label_texts(told)
    start = time.monotonic()
    with recorded(events, tensorboard), kept_in(checkpoint):
        learner = kind(settings, threads=threads)
        if logging.getLogger("xmcascade").isEnabledFor(logging.INFO):
            _print_plan(model, learner.plan(corpus, minutes=minutes))
        fitted = learner.fit(corpus, checkpoint=checkpoint, minutes=minutes)
    seconds = time.monotonic() - start
    fitted.save(to)
    learnt = int(np.count_nonzero(np.diff(corpus.labels.indptr)))  # documents with labels
    values = {"model": model, "folder": str(to), "documents": learnt, "labels": fitted.n_labels}
    show({**values, "seconds": round(seconds, 2), "derived": fitted.derived}, as_json)


def _usual(effort: str | None) -> str:
    """The method where none is named."""
    if effort == "fast":
        return QUICK
    if find_spec("torch") is None or find_spec("transformers") is None:
        remedy = 'pip install "xmcascade[neural]"'
        err.print(f"{USUAL} needs torch and transformers ({remedy}): {QUICK} is used", markup=False)
        return QUICK
    return USUAL


def _settings(
    kind: Any, preset: str | None, effort: str | None, configured: dict[str, Any], told: list[str]
) -> Any:
    """A preset's or the default ones, changed by the config file, then by the command line."""
    if preset is not None and preset not in kind.presets:
        known = ", ".join(kind.presets) or f"none for {kind.name}"
        raise SettingError(f"there is no preset {preset!r}", remedy=f"the presets are: {known}")
    settings = kind.presets[preset] if preset is not None else kind.settings_type()
    if effort not in (None, "fast", "balanced", "best"):
        raise SettingError(f"effort is {effort!r}", remedy="use fast, balanced or best")
    if effort is not None and "effort" in settings.to_dict():
        settings = settings.with_values({"effort": effort})
    return settings.with_values(configured).with_text(told)


def _print_plan(model: str, plan: dict[str, Any]) -> None:
    table = Table("plan", "value", "why", box=None, title=f"{model}: what will be done", title_justify="left")
    for name, fact in plan.items():
        value = fact["value"]
        shown = value if isinstance(value, str) else json.dumps(value)
        table.add_row(name, f"{value:,}" if isinstance(value, int) else shown, fact["reason"])
    err.print(table, markup=False)


def _check_apart(checkpoint: Path, to: Path) -> None:
    work, model = checkpoint.resolve(), to.resolve()
    if work.is_relative_to(model) or model.is_relative_to(work):
        relation = "are the same folder" if work == model else "lie in one another"
        what = f"the checkpoint {checkpoint} and the model {to} {relation}"
        raise SettingError(what, remedy="give --checkpoint a folder of its own")


class Stopped(Exception):
    """Ctrl-C during work that is kept."""


@contextmanager
def kept_in(checkpoint: Path | None) -> Iterator[None]:
    """After Ctrl-C, say where the work done so far is kept."""
    try:
        yield
    except BaseException as error:
        if checkpoint is None or not checkpoint.exists() or not is_interrupt(error):
            raise
        what = f"interrupted; what is finished is kept in {checkpoint}: run the same command again to go on"
        raise Stopped(what) from error


def is_interrupt(error: BaseException | None) -> bool:
    """Whether Ctrl-C is behind this."""
    if error is None or isinstance(error, KeyboardInterrupt):
        return error is not None
    return is_interrupt(error.__cause__) or is_interrupt(error.__context__)  # compiled code wraps it
