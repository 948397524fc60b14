"""`xmcascade compare` and `inspect`: reports for people."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from typer import Exit, Option

from xmcascade.cli.common import (
    AsJson,
    Data,
    ModelFolder,
    Threads,
    reads,
    report_left_out,
    say,
    show,
    table_of,
)
from xmcascade.cli.training import kept_in
from xmcascade.corpus import BUILT_IN, ReadSettings, load_corpus

__all__ = ["compare", "inspect", "print_comparison"]

METHODS = ["xr-linear", "cascadexml-tfidf"]


@reads
def compare(
    data: Data,
    test: Annotated[
        str | None, Option(help="Documents to judge on, read like DATA [default: a part of DATA].")
    ] = None,
    method: Annotated[
        list[str] | None,
        Option(
            help="A method, perhaps with settings: 'xr-linear beam=30'; or a peer: peer:pecos-xrlinear. "
            f"Once for each [default: {', '.join(METHODS)}]."
        ),
    ] = None,
    to: Annotated[Path, Option("--out", help="Folder of the report; what is finished is kept there.")] = Path(
        "comparison"
    ),
    baseline: Annotated[str | None, Option(help="The method to compare with [default: the best].")] = None,
    test_share: Annotated[
        float, Option(min=0, max=1, help="The part to judge on, where there is no --test.")
    ] = 0.1,
    seed: Annotated[int, Option(help="Of that part.")] = 0,
    threads: Threads = None,
    as_json: AsJson = False,
    *,
    reading: ReadSettings,
) -> None:
    """Train several methods on the same documents and judge them on others: quality, time, memory, size.

    Other packages take part as peer:pecos-xrlinear, peer:pecos-xrtransformer, peer:omikuji-parabel,
    peer:omikuji-bonsai, peer:napkinxc-plt and peer:sklearn-linearsvc, each in an environment that is made
    for it. The same command again runs only what is not finished.

    Example: xmcascade compare products.csv --text title --labels tags --method xr-linear --method nearest
    """
    from xmcascade.report import compare as compared

    train = load_corpus(data, "train", reading)
    report_left_out(train)
    other = None
    if test is not None or (data in BUILT_IN and not Path(data).exists()):
        other = load_corpus(test or data, "test", reading, empty_text="keep")
        report_left_out(other)
    how: dict[str, Any] = {"baseline": baseline, "test_share": test_share, "seed": seed, "threads": threads}
    with kept_in(to):
        found = compared(train, other, method or METHODS, to, **how)
    found.write(to)
    if as_json:
        show(found.to_dict(), as_json)
    else:
        print_comparison(found)
        say(f"report: {to / 'index.html'}")
    if any(row.error for row in found.rows):
        raise Exit(1)


def print_comparison(found: Any) -> None:
    """Tables of quality, differences and cost, and what failed."""
    tables = {"": found.quality()}
    if found.tested:
        tables[f"differences to {found.baseline}"] = found.differences()
    tables["cost"] = found.costs()
    for title, table in tables.items():
        if title:
            say(title)
        table_of(list(table.columns), [[_cell(value, table.digits) for value in row] for row in table.rows])
        say("")
    for row in found.rows:
        if row.error:
            say(f"{row.method} failed: {row.error}")


def _cell(value: Any, digits: int) -> str:
    if value is None or value != value:
        return "-"
    if isinstance(value, float):
        return f"{value:,.{digits}f}"
    return "\n".join(filter(None, [str(getattr(value, "text", value)), getattr(value, "note", "")]))


@reads
def inspect(
    model: ModelFolder,
    data: Data,
    to: Annotated[Path, Option("--out", help="Folder of the report.")] = Path("inspection"),
    explain: Annotated[str | None, Option(help="A text of yours to explain.")] = None,
    documents: Annotated[int, Option(help="At most so many are asked about.")] = 2000,
    looked_at: Annotated[int, Option(help="Of these, for looks inside the encoder.")] = 500,
    threads: Threads = None,
    as_json: AsJson = False,
    *,
    reading: ReadSettings,
) -> None:
    """Look into a model with documents it has not seen: what it finds, misses and confuses, and why.

    Writes a page with pictures (index.html), the pictures as PNG and SVG, and all numbers as JSON.

    Example: xmcascade inspect my-model test.csv --text title --labels tags --out look
    """
    from xmcascade.models import load
    from xmcascade.report import inspect_model

    fitted = load(model, threads=threads)
    corpus = load_corpus(data, "test", reading, empty_text="keep")
    report_left_out(corpus)
    found = inspect_model(fitted, corpus, to, text=explain, documents=documents, looked_at=looked_at)
    if as_json:
        show(found.to_dict(), as_json)
        return
    say(f"report: {to / 'index.html'}")
