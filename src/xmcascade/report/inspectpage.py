"""An inspection as a folder: a page for people, plots, and all numbers as JSON.

Every section says first, in plain words, what it shows and how to read it.
"""

from __future__ import annotations

import json
import re
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from html import escape
from pathlib import Path
from typing import Any

from xmcascade.errors import DataError
from xmcascade.models.views import Inside
from xmcascade.report import inspectplots as plots
from xmcascade.report.explain import names_of
from xmcascade.report.inspect import Example, Inspection, Looking
from xmcascade.report.lookpage import LookingParts
from xmcascade.report.mistakes import WrongDocument
from xmcascade.report.names import shortened
from xmcascade.report.page import Markup, Page, Part, Picture, Table
from xmcascade.report.plots import picture, save_figure
from xmcascade.report.textpage import TEXT_STYLE, ExplanationPart
from xmcascade.report.treepage import TREE_STYLE, TreePart
from xmcascade.store.atomic import replacing
from xmcascade.store.files import replacing_file

__all__ = ["check_folder", "write_folder"]

PAGE, NUMBERS = "index.html", "inspection.json"
OURS = re.compile(
    r"index\.html|inspection\.json"
    r"|(slices|calibration|recall|self-attention|entropy|similarity)(-\d+)?\.(png|svg)"
)
LABELS = 12  # shown of a document
BROAD = 7.0  # inches; broader plots are not shrunk on narrow screens but moved sideways
STYLE = """
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(9rem, 1fr)); gap: .8rem;
  margin: 1rem 0 1.4rem }
.cards div { background: var(--panel); border-radius: 8px; padding: .8rem 1rem }
.cards b { display: block; font-size: 1.6rem; font-weight: 600; font-variant-numeric: tabular-nums }
.cards span { color: var(--soft); font-size: .88rem; display: block; line-height: 1.35 }
.doc { border-top: 1px solid var(--line); padding: .9rem 0 .6rem; max-width: 60rem }
.doc p { margin: 0 0 .5rem; max-width: none }
.doc dl { margin: 0; display: grid; grid-template-columns: 5rem minmax(0, 1fr); gap: .35rem .8rem;
  font-size: .9rem }
.doc dt { color: var(--soft) }
.doc dd { margin: 0; display: flex; flex-wrap: wrap; gap: .3rem }
.chip { background: var(--panel); border-radius: 5px; padding: .02rem .45rem; overflow-wrap: anywhere }
.chip.right { background: var(--good); color: var(--good-ink) }
.chip small { color: var(--soft) }
.word { white-space: nowrap }
@media (max-width: 44rem) { .broad { overflow-x: auto } .broad svg { max-width: none } }
"""


def check_folder(folder: str | Path) -> None:
    """Raise unless an inspection may be written here: nothing, an empty folder, or an earlier inspection.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     _ = Path(folder, "thesis.tex").write_text("...")
    ...     check_folder(folder)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    xmcascade.errors.DataError: ...: holds 'thesis.tex', which is no part of an inspection...
    """
    path = Path(folder)
    if path.exists() and not path.is_dir():
        raise DataError("is a file", where=str(path), remedy="give a folder")
    names = sorted(entry.name for entry in path.iterdir()) if path.is_dir() else []
    strange = [name for name in names if not OURS.fullmatch(name)]
    if strange or (names and NUMBERS not in names):
        what = f"holds {(strange or names)[0]!r}, which is no part of an inspection"
        raise DataError(what, where=str(path), remedy="give a new or an empty folder")


def write_folder(found: Inspection, inside: Inside, folder: str | Path) -> None:
    """Write the page, the plots and the numbers; the folder appears whole."""
    numbers = json.dumps(found.to_dict(), indent=1, allow_nan=False)
    with replacing(Path(folder), check_folder) as new:
        _Writer(found, inside, new).page().write(new / PAGE)
        with replacing_file(new / NUMBERS) as stream:
            stream.write(numbers.encode())


@dataclass(frozen=True, eq=False)
class _Writer:
    """Writes sections; what there is nothing of gets none."""

    found: Inspection
    inside: Inside
    folder: Path

    def page(self) -> Page:
        found = self.found
        asked = f"{found.n_docs:,} documents"
        if found.n_docs < found.n_given:
            asked += f", chosen from {found.n_given:,} with seed {found.seed}"
        learnt = f"{found.n_labels:,} labels, learnt from {found.n_trained_on:,} documents"
        style = STYLE + TREE_STYLE + TEXT_STYLE
        page = Page(f"Inside {found.model}", f"{learnt}; asked about {asked}", extra_style=style)
        self._short(page)
        self._quality(page)
        self._slices(page)
        self._calibration(page)
        self._confusions(page)
        self._worst(page)
        self._recall(page)
        for i, looking in enumerate(found.looking, 1):
            self._looking(page, looking, "" if i == 1 else f"-{i}")
        self._words(page)
        for example in found.examples:
            self._example(page, example)
        self._tree(page)
        if found.notes:
            page.section("What is missing here", *found.notes)
        return page

    def _drawn(self, number: str, name: str, plot: AbstractContextManager[Any], caption: str) -> Picture:
        """A plot for the page, and as files."""
        with plot as fig:
            for kind in ("png", "svg"):
                save_figure(fig, self.folder / f"{name}{number}.{kind}")
            drawn = picture(fig, caption)
        if fig.get_figwidth() < BROAD:
            return drawn
        return Picture(Markup(f"<div class=broad>{drawn.html.text}</div>"), caption)

    def _short(self, page: Page) -> None:
        metrics, recalls = self.found.evaluation.metrics, self.found.recalls
        error = 100 * self.found.reliability.error
        cards = [
            (f"{metrics['P@1']:.1f}%", "of its first labels are right (P@1)"),
            (f"{metrics['P@5']:.1f}%", "of its first five labels are right (P@5)"),
            (f"{metrics['R@5']:.1f}%", "of the true labels are among its first five (R@5)"),
            (f"{error:.1f}", "points between its probabilities and the truth (ECE)"),
        ]
        if recalls:
            last = [own for own in recalls if own.opinion == recalls[0].opinion][-1]
            cards.append((f"{last.labels:.1f}%", "of the true labels survive the way down its tree"))
        if unseen := self.found.evaluation.unseen_share:
            cards.append((f"{unseen:.1f}%", "of the true labels it has never seen and must miss"))
        inner = (f"<div><b>{escape(number)}</b><span>{escape(what)}</span></div>" for number, what in cards)
        page.section("In short", _Html(f"<div class=cards>{''.join(inner)}</div>"))

    def _quality(self, page: Page) -> None:
        found = self.found.evaluation
        ks = sorted({int(name.partition("@")[2]) for name in found.metrics if name.startswith("P@")})
        rows = [
            [metric, *(_cell(found.metrics[name], *found.intervals[name]) for name in names)]
            for metric in ("P", "R", "nDCG", "PSP", "PSnDCG")
            for names in ([f"{metric}@{k}" for k in ks],)
        ]
        page.section(
            "How good it is",
            "`P` is the share of right labels among its first 1, 3 or 5; `R` the share of a document's true "
            "labels that are among them; `nDCG` asks for the right ones first; `PSP` and `PSnDCG` count rare "
            "labels for more. All in percent. Beside it in small: where the number would lie, 95 times of "
            "100, with other documents of the same kind.",
            Table(["", *(f"first {k}" if k > 1 else "the first" for k in ks)], rows),
        )

    def _slices(self, page: Page) -> None:
        slices = self.found.evaluation.slices
        metric = next(key for key in slices["head"] if key.startswith("R@"))
        caption = "How many of the true labels are found among the first five, by how frequent the label is."
        page.section(
            "Frequent and rare labels",
            "Three groups of labels that were used about equally often in training: the head is a few "
            "frequent labels, the tail many rare ones. A model that only knows frequent labels has a tall "
            "first bar and a short last one.",
            self._drawn("", "slices", plots.slices_plot(slices, metric), caption),
        )

    def _calibration(self, page: Page) -> None:
        error = 100 * self.found.reliability.error
        caption = "The larger a point, the more predictions it stands for: small ones are unsure themselves."
        page.section(
            "Can its probabilities be trusted?",
            "Of all labels that it tells with a probability of 0.8, four of five should be right. Where the "
            "line is below the dashed one it is too sure of itself, above it too modest. Grey bars: how many "
            "of its predictions (the first five of each document) have such a probability. On average the "
            f"two are {error:.1f} points apart (the expected calibration error).",
            self._drawn("", "calibration", plots.calibration_plot(self.found.reliability), caption),
        )

    def _confusions(self, page: Page) -> None:
        rows = [
            [shortened(own.true), shortened(own.predicted), own.documents, own.missed, own.the_other_way]
            for own in self.found.confusions
        ]
        columns = ["missed", "told in its place", "documents", "missed in all", "the other way round"]
        if rows:
            page.section(
                "Labels it takes for one another",
                "A true label that it missed, and a wrong one that it told for the same documents. Such "
                "pairs are often near synonyms, or two ways to use one label: worth a look at the training "
                "data.",
                Table(columns, rows),
            )

    def _worst(self, page: Page) -> None:
        if self.found.worst:
            page.section(
                "Documents it is most wrong about",
                "None or few of their labels were found, and it was sure of others. Sometimes the model is "
                "at fault, sometimes the labels are.",
                *(_Html(_document(own)) for own in self.found.worst),
            )

    def _recall(self, page: Page) -> None:
        recalls = self.found.recalls
        if not recalls:
            return
        opinions = list(dict.fromkeys(own.opinion for own in recalls))
        columns = ["level", "clusters", "looked into", "true clusters kept, %", "true labels kept, %"]
        rows: list[list[Any]] = [
            [own.level + 1, own.clusters, own.going_on, own.recall, own.labels] for own in recalls
        ]
        if len(opinions) > 1:
            columns = ["opinion", *columns]
            rows = [[own.opinion, *row] for own, row in zip(recalls, rows, strict=True)]
        first = [own for own in recalls if own.opinion == opinions[0]]
        names = [f"level {own.level + 1}\n{own.going_on:,.0f} of {own.clusters:,}" for own in first]
        plot = plots.recall_plot(names, [own.recall for own in first], [own.labels for own in first])
        caption = "What is left of the truth after each level; under it, how many clusters are looked into."
        page.section(
            "The way down the tree",
            f"It does not score all {self.found.n_labels:,} labels of a text. It scores clusters of labels, "
            "looks into the best ones only, and so on down to the labels. What is lost on the way cannot be "
            "found any more: these are its limits, level by level (Table 11 of the CascadeXML paper).",
            self._drawn("", "recall", plot, caption),
            Table(columns, rows, digits=1),
        )

    def _looking(self, page: Page, looking: Looking, number: str) -> None:
        which = f" ({looking.opinion})" if len(self.found.looking) > 1 else ""
        parts = LookingParts(looking, partial(self._drawn, number))
        if where := parts.where():
            page.section(f"Where it looks{which}", *where)
        if looking.similarity is not None:
            page.section(f"How different its levels are{which}", *parts.levels())

    def _words(self, page: Page) -> None:
        rows = [
            [shortened(own.label, 60), own.documents, own.right, _words(own.words)]
            for own in self.found.words
        ]
        if rows:
            page.section(
                "Words that made labels win",
                "For the labels that were first most often: the words of these documents that gave the label "
                "its score, with what each added on average. Nothing is estimated: these are the parts that "
                "the score is the sum of. A label that wins by words that have nothing to do with it has "
                "learnt a coincidence.",
                Table(["label", "was first", "rightly", "words"], rows),
            )

    def _example(self, page: Page, example: Example) -> None:
        way = "the way through the tree to it, level by level, and what in the text spoke for every step."
        if all(len(path) == 1 for label in example.explanation.labels for path in label.paths):
            way = "what in the text spoke for it and what against."
        parts: list[str | Part] = [f"Each label it told, best first, opens: {way}"]
        kinds = {opinion.how for opinion in example.explanation.opinions if opinion.tokens}
        if "parts" in kinds:
            parts.append(
                "Blue: tokens that add more than others to the score of this step, the darker the more; "
                "underlined: tokens that speak against it. The parts are exact, they add up to the score. "
                "But by then a token has taken in much of its neighbours: what counts may stand nearby."
            )
        if "attention" in kinds:
            parts.append("Blue: tokens that get most attention at this step, the darker the more.")
        page.section(f"Why: {example.what}", *parts, ExplanationPart(example.explanation, example.true))

    def _tree(self, page: Page) -> None:
        trees = {id(v.tree): v for v in self.inside.views if v.tree is not None and v.tree.n_levels > 1}
        if not trees:
            return
        names = names_of(self.inside, next(iter(trees.values())))
        part, sizes = TreePart(names), " and ".join(f"{size:,}" for size in names.tree.sizes[:-1])
        left = names.tree.n_labels - part.n_labels_written
        page.section(
            "The label tree",
            f"{names.tree.n_labels:,} labels in {sizes} clusters. A cluster is named by words that are "
            "typical of its labels; bars and numbers tell how often these were used in training. Clusters of "
            "labels that have little in common are hard to find."
            + (f" There are {len(trees)} trees; this is the first." if len(trees) > 1 else "")
            + (f" Too many to be written whole: {left:,} labels are left out." if left else ""),
            part,
        )


@dataclass(frozen=True)
class _Html:
    """Made here, from escaped parts."""

    html: str

    def to_html(self) -> Markup:
        return Markup(self.html)


def _cell(value: float, low: float, high: float) -> Markup:
    return Markup(f"{value:.1f} <small class=soft>{low:.1f} to {high:.1f}</small>")


def _words(words: tuple[tuple[str, float], ...]) -> Markup:
    each = (
        f"<span class=word>{escape(shortened(word, 40))} <small class=soft>{part:+.2f}</small></span>"
        for word, part in words
    )
    return Markup(", ".join(each))


def _document(own: WrongDocument) -> str:
    told = (_chip(name, f" <small>{chance:.2f}</small>", right) for name, chance, right in own.predicted)
    true = [_chip(name) for name in own.true[:LABELS]]
    if len(own.true) > LABELS:
        true.append(f"<span class=soft>and {len(own.true) - LABELS} more</span>")
    text = escape(own.excerpt) if own.excerpt else f"document {escape(shortened(own.id))}"
    lists = f"<dt>its labels<dd>{''.join(true)}<dt>it told<dd>{''.join(told)}"
    return f"<div class=doc><p>{text}</p><dl>{lists}</dl></div>"


def _chip(name: str, more: str = "", right: bool = False) -> str:
    return f'<span class="chip{" right" if right else ""}">{escape(shortened(name))}{more}</span>'
