"""A report as one HTML file that needs nothing else: no network, no script from anywhere, all text escaped.

A page is a list of sections, a section a list of things that know how they look. What comes from the user's
data (label names, words) can only enter as text.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any, Protocol

from xmcascade.store.files import replacing_file

__all__ = ["Markup", "Number", "Page", "Part", "Picture", "Table", "Text"]

STYLE = """
:root { color-scheme: light dark; --ink: #1c2024; --soft: #5d6570; --paper: #ffffff; --line: #e3e6ea;
  --panel: #f6f7f9; --mark: #0072b2; --good: #e5f4ee; --good-ink: #00684b }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e8eb; --soft: #9aa3ad; --paper: #15181b;
  --line: #2b3036; --panel: #1c2024; --mark: #56b4e9; --good: #12312a; --good-ink: #5fd3ae } }
* { box-sizing: border-box }
html { scroll-padding-top: 1rem }
body { margin: 0; color: var(--ink); background: var(--paper);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", sans-serif }
.sheet { max-width: 76rem; margin: 0 auto; padding: 2.5rem 1.5rem 5rem; display: grid;
  grid-template-columns: 13rem minmax(0, 1fr); gap: 0 3rem }
header { grid-column: 1 / -1; border-bottom: 1px solid var(--line); margin: 0 0 2rem; padding: 0 0 1rem }
h1 { font-size: 1.9rem; line-height: 1.2; margin: 0 0 .4rem; letter-spacing: -.01em; overflow-wrap: anywhere }
h2 { font-size: 1.3rem; margin: 2.6rem 0 .6rem; letter-spacing: -.005em }
main > section:first-child h2 { margin-top: 0 }
p, li { max-width: 46rem; overflow-wrap: anywhere }
.soft, figcaption, th, summary small { color: var(--soft) }
nav { position: sticky; top: 1.5rem; align-self: start; font-size: .92rem }
nav a { display: block; padding: .22rem 0; color: var(--soft); text-decoration: none }
nav a:hover, nav a:focus-visible { color: var(--mark) }
a { color: var(--mark) }
.wide { overflow-x: auto; margin: .8rem 0 1.2rem }
table { border-collapse: collapse; font-size: .92rem; font-variant-numeric: tabular-nums }
th, td { padding: .34rem .8rem .34rem 0; text-align: left; vertical-align: baseline;
  border-bottom: 1px solid var(--line) }
th { font-weight: 500; white-space: nowrap }
td.number, th.number { text-align: right; padding-left: 1rem; white-space: nowrap }
td.best { color: var(--good-ink); font-weight: 600 }
td small { display: block; color: var(--soft); font-weight: 400; font-size: .8em; line-height: 1.2 }
figure { margin: 1rem 0 1.6rem }
figure svg { max-width: 100%; height: auto; display: block; color: var(--soft) }
figcaption { font-size: .92rem; margin-top: .4rem; max-width: 46rem }
code { font: .9em ui-monospace, "Cascadia Mono", Menlo, Consolas, monospace; background: var(--panel);
  padding: .1em .35em; border-radius: 4px; overflow-wrap: anywhere }
@media (max-width: 56rem) { .sheet { grid-template-columns: minmax(0, 1fr); padding-top: 1.5rem }
  nav { position: static; columns: 2; margin-bottom: 1rem } }
@media print { nav { display: none } .sheet { display: block } }
"""


@dataclass(frozen=True)
class Markup:
    """Text that is HTML already, made by code of ours from escaped parts."""

    text: str


class Part(Protocol):
    """Anything that can stand on a page."""

    def to_html(self) -> Markup:
        """How it looks."""


@dataclass(frozen=True)
class Text:
    """A paragraph; words in `backticks` are set as code.

    >>> Text("1 < 2, says `x`").to_html().text
    '<p>1 &lt; 2, says <code>x</code></p>'
    """

    text: str

    def to_html(self) -> Markup:
        """How it looks."""
        return Markup("<p>" + re.sub(r"`([^`]*)`", r"<code>\1</code>", escape(self.text)) + "</p>")


@dataclass(frozen=True)
class Picture:
    """A drawing, and what it shows in words."""

    html: Markup
    caption: str

    def to_html(self) -> Markup:
        """How it looks."""
        caption = escape(self.caption)
        drawn = self.html.text.replace("<svg", f'<svg role="img" aria-label="{caption}"', 1)
        return Markup(f"<figure>{drawn}<figcaption>{caption}</figcaption></figure>")


@dataclass(frozen=True)
class Number:
    """A number as it is to be read, and perhaps a note under it, such as its interval."""

    text: str
    note: str = ""


@dataclass(frozen=True)
class Table:
    """Rows of text and numbers; numbers stand to the right, and the best of a column may be marked.

    >>> Table(["method", "P@1"], [["<b>", 81.275]]).to_html().text.count("&lt;b&gt;")
    1
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    best: Sequence[tuple[int, int]] = ()
    """(row, column) of cells to mark."""
    digits: int = 2

    def to_html(self) -> Markup:
        """How it looks."""
        numeric = [any(_is_number(row[i]) for row in self.rows) for i in range(len(self.columns))]
        kinds = [' class="number"' if own else "" for own in numeric]
        head = "".join(
            f"<th scope=col{kind}>{escape(name)}</th>" for name, kind in zip(self.columns, kinds, strict=True)
        )
        marked, body = set(self.best), []
        for y, row in enumerate(self.rows):
            cells = []
            for x, value in enumerate(row):
                names = [
                    name for name, holds in (("number", numeric[x]), ("best", (y, x) in marked)) if holds
                ]
                kind = f' class="{" ".join(names)}"' if names else ""
                cells.append(f"<td{kind}>{_cell(value, self.digits)}</td>")
            body.append(f"<tr>{''.join(cells)}</tr>")
        return Markup(
            f'<div class=wide tabindex=0 role=region aria-label="Table"><table><thead><tr>{head}</tr></thead>'
            f"<tbody>{''.join(body)}</tbody></table></div>"
        )


@dataclass
class Page:
    """A report.

    >>> page = Page("Two methods", "on one corpus")
    >>> page.section("Quality", "Higher is better.", Table(["method", "P@1"], [["xr-linear", 78.49]]))
    >>> "<h2" in page.to_html()
    True
    """

    title: str
    subtitle: str = ""
    sections: list[tuple[str, list[Part]]] = field(default_factory=list)
    extra_style: str = ""
    """More CSS, of ours."""

    def section(self, title: str, *parts: Part | str) -> None:
        """Add a section; plain strings are paragraphs."""
        self.sections.append((title, [Text(part) if isinstance(part, str) else part for part in parts]))

    def to_html(self) -> str:
        """The whole page."""
        links, body = [], []
        for number, (title, parts) in enumerate(self.sections):
            name = f"s{number}"
            links.append(f'<a href="#{name}">{escape(title)}</a>')
            inner = "".join(_unique(part.to_html().text, f"{name}p{i}-") for i, part in enumerate(parts))
            body.append(f'<section id="{name}"><h2>{escape(title)}</h2>{inner}</section>')
        return (
            "<!doctype html><html lang=en><head><meta charset=utf-8>"
            '<meta name=viewport content="width=device-width, initial-scale=1">'
            "<meta http-equiv=Content-Security-Policy content=\"default-src 'none'; "
            "style-src 'unsafe-inline'; img-src data:\">"
            f"<title>{escape(self.title)}</title><style>{STYLE}{self.extra_style}</style></head><body>"
            f"<div class=sheet><header><h1>{escape(self.title)}</h1>"
            f"<div class=soft>{escape(self.subtitle)}</div></header>"
            f"<nav aria-label=Contents>{''.join(links)}</nav><main>{''.join(body)}</main></div>"
            "</body></html>\n"
        )

    def write(self, path: str | Path) -> None:
        """Write it as a file; it appears whole or not at all."""
        with replacing_file(path) as stream:
            stream.write(self.to_html().encode("utf-8", "replace"))


def _unique(html: str, begin: str) -> str:
    """Names inside drawings made apart, where several of them stand on one page."""
    if "<svg" not in html:
        return html
    html = re.sub(r'(\bid=")', rf"\g<1>{begin}", html)
    return re.sub(r'((?:xlink:)?href="#|url\(#)', rf"\g<1>{begin}", html)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float, Number)) and not isinstance(value, bool)


def _cell(value: Any, digits: int) -> str:
    if value is None or value != value:
        return "–"
    if isinstance(value, Markup):
        return value.text
    if isinstance(value, Number):
        return escape(value.text) + (f"<small>{escape(value.note)}</small>" if value.note else "")
    if isinstance(value, float):
        return f"{value:,.{digits}f}"
    return escape(f"{value:,}" if _is_number(value) else str(value))
