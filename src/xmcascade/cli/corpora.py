"""`xmcascade corpus`: look at, convert and build corpora."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from xmcascade.cli.common import AsJson, Data, apart, group, reads, report_left_out, show
from xmcascade.corpus import BUILT_IN, ReadSettings, load_corpus, write_corpus
from xmcascade.errors import SettingError

__all__ = ["app"]

app = group(
    "Look at, convert and build corpora.", "xmcascade corpus stats products.csv --text title --labels tags"
)


@app.command("stats")
@reads
def stats(data: Data, as_json: AsJson = False, *, reading: ReadSettings) -> None:
    """Count documents, labels and words, and say what is wrong with the file.

    Example: xmcascade corpus stats products.csv --text title --labels tags
    """
    corpus = load_corpus(data, "train", reading, on_error="skip", empty_text="keep")
    problems = {found.reason: {"count": found.count, "first": found.first} for found in corpus.left_out}
    show({**corpus.stats(), "left out": problems}, as_json)
    if not as_json:
        report_left_out(corpus)


@app.command("convert")
@reads
def convert(
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
    apart(to, data)
    corpus = load_corpus(data, "train", reading, empty_text="keep")
    report_left_out(corpus)
    write_corpus(corpus, to)
    show({"file": str(to), "documents": corpus.n_docs, "labels": corpus.n_labels}, as_json)


@app.command("build")
def build(
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
    show({"folder": str(to), **sizes, "labels": train_part.n_labels}, as_json)
