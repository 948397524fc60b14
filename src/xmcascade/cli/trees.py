"""`xmcascade tree`: label trees of models, and trees that users bring."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from xmcascade.cli.common import AsJson, Data, ModelFolder, apart, group, reads, report_left_out, say, show
from xmcascade.corpus import ReadSettings, load_corpus
from xmcascade.errors import DataError, SettingError
from xmcascade.store.files import replacing_file
from xmcascade.tree import LabelTree, read_tree, tree_from_edges, tree_from_paths, tree_to_json

if TYPE_CHECKING:
    from xmcascade.report.names import TreeNames

__all__ = ["app"]

app = group("Look at label trees, take them out of models, bring your own.", "xmcascade tree show my-model")


@app.command("show")
def show_tree(
    model: ModelFolder,
    levels: Annotated[int, Option(min=1, help="Levels to print.")] = 2,
    children: Annotated[int, Option(min=1, help="Children of a cluster to print.")] = 8,
    which: Annotated[int, Option("--tree", help="Which tree, where a model has several; from 1.")] = 1,
) -> None:
    """Print the label tree of a model: clusters by their typical words, and how many labels they hold.

    Example: xmcascade tree show my-model --levels 3
    """
    tree, names = _tree(model, which)
    say(f"{tree.n_labels:,} labels; nodes of each level: {', '.join(f'{size:,}' for size in tree.sizes)}")

    def lines(level: int, nodes: range, indent: str) -> None:
        for node in list(nodes)[:children]:
            name, below = names.of(level, node), len(tree.below(level, node))
            last = level == tree.n_levels - 1
            say(f"{indent}{name}" if last else f"{indent}{name} ({below:,} labels)")
            if not last and level + 1 < levels:
                first, end = tree.offsets[level][node : node + 2].tolist()
                lines(level + 1, range(first, end), f"{indent}    ")
        if len(nodes) > children:
            say(f"{indent}... and {len(nodes) - children:,} more")

    lines(0, range(tree.sizes[0]), "")


@app.command("export")
def export_tree(
    model: ModelFolder,
    to: Annotated[Path, Argument(metavar="OUT", help="File to write, .json.")] = Path("tree.json"),
    which: Annotated[int, Option("--tree", help="Which tree, where a model has several; from 1.")] = 1,
    as_json: AsJson = False,
) -> None:
    """Write the label tree of a model as nested lists of label names, for --set tree.file=...

    Example: xmcascade tree export my-model tree.json
    """
    apart(to)
    tree, names = _tree(model, which)
    _write(tree, names.label_names, to)
    show({"file": str(to), "labels": tree.n_labels, "levels": tree.n_levels, "sizes": tree.sizes}, as_json)


def _tree(model: Path, which: int) -> tuple[LabelTree, TreeNames]:
    from xmcascade.models import load
    from xmcascade.models.views import look_inside
    from xmcascade.report.names import TreeNames

    inside = look_inside(load(model))
    found = [(view.tree, view) for view in inside.views if view.tree is not None]
    if not 1 <= which <= len(found):
        what = f"tree {which} of a model with {len(found)}"
        raise SettingError(what, remedy="use 1" if found else "use a model that builds one, as xr-linear")
    tree, view = found[which - 1]
    return tree, TreeNames(inside.label_names, inside.label_counts, tree, view)


def _write(tree: LabelTree, names: Any, to: Path) -> None:
    with replacing_file(to) as stream:
        stream.write(json.dumps(tree_to_json(tree, names), ensure_ascii=False).encode())


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
    apart(to, taxonomy, data)
    corpus = load_corpus(data, "train", reading)
    report_left_out(corpus)
    tree = _taxonomy(taxonomy, corpus.label_names)
    _write(tree, corpus.label_names, to)
    show({"file": str(to), "labels": tree.n_labels, "levels": tree.n_levels, "sizes": tree.sizes}, as_json)


def _taxonomy(path: Path, names: Any) -> LabelTree:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, ValueError) as error:
        raise DataError(
            f"cannot be read ({error})", where=str(path), remedy="give a CSV or JSON file in UTF-8"
        ) from error
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
