"""`xmcascade tree`: label trees of models, and trees that users bring."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from xmcascade.cli.common import AsJson, Data, group, reads, report_left_out, show
from xmcascade.corpus import ReadSettings, load_corpus
from xmcascade.errors import DataError
from xmcascade.store.files import replacing_file
from xmcascade.tree import LabelTree, read_tree, tree_from_edges, tree_from_paths, tree_to_json

__all__ = ["app"]

app = group("Look at label trees, take them out of models, bring your own.")


@app.command("import")
@reads
def import_tree(
    taxonomy: Annotated[
        Path,
        Argument(
            metavar="TAXONOMY",
            help="Your taxonomy: a CSV file of parent,child lines, or JSON: paths by label, or a tree.",
        ),
    ],
    data: Data,
    to: Annotated[Path, Option("--out", help="File to write, for --set tree.file=...")] = Path("tree.json"),
    as_json: AsJson = False,
    *,
    reading: ReadSettings,
) -> None:
    """Make a label tree of a taxonomy, for the labels of a corpus.

    Example: xmcascade tree import taxonomy.csv products.csv --text title --labels tags --out tree.json
    """
    corpus = load_corpus(data, "train", reading)
    report_left_out(corpus)
    tree = _taxonomy(taxonomy, corpus.label_names)
    with replacing_file(to) as stream:
        stream.write(json.dumps(tree_to_json(tree, corpus.label_names), ensure_ascii=False).encode())
    show({"file": str(to), "labels": tree.n_labels, "levels": tree.n_levels, "sizes": tree.sizes}, as_json)


def _taxonomy(path: Path, names: Any) -> LabelTree:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, ValueError) as error:
        raise DataError(f"cannot be read ({error})", where=str(path), remedy="check the path") from error
    if path.suffix.lower() != ".json":
        rows = [row for row in csv.reader(text.splitlines()) if row]
        wrong = next((number for number, row in enumerate(rows, 1) if len(row) != 2), None)
        if wrong is not None:
            what = f"has {len(rows[wrong - 1])} cells, not 2"
            raise DataError(what, where=f"{path}:{wrong}", remedy="write parent,child on each line")
        return tree_from_edges([(row[0].strip(), row[1].strip()) for row in rows], names)
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(f"is not JSON ({error!s:.80})", where=str(path), remedy="check the file") from error
    if isinstance(value, dict) and set(value) == {"tree"}:
        return read_tree(path, names)
    if not isinstance(value, dict) or not all(isinstance(above, list) for above in value.values()):
        remedy = 'write {"label": ["topmost cluster", "next", ...], ...}'
        raise DataError("holds no paths by label", where=str(path), remedy=remedy)
    return tree_from_paths(value, names)
