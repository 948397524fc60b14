"""One text on a page: its labels, the way to each, and what spoke for it, as colours in the text and bars."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np
import numpy.typing as npt

from xmcascade.report.explain import Explanation, Label, Opinion, Stop
from xmcascade.report.names import shortened
from xmcascade.report.page import Markup

__all__ = ["TEXT_STYLE", "ExplanationPart"]

SHADES = 5
WORDS = 8  # shown of each label
UNREAD = 200  # characters shown of what was cut
EXCERPT = 1200  # characters shown of the text itself
TEXT_STYLE = """
.why { border: 1px solid var(--line); border-radius: 8px; margin: .6rem 0; padding: 0 1rem; max-width: 60rem }
.why > summary { cursor: pointer; padding: .6rem 0; display: flex; gap: .8rem; align-items: baseline;
  font-weight: 600; overflow-wrap: anywhere }
.why > summary small { margin-left: auto; font-weight: 400; white-space: nowrap }
.why em { flex: none; font-style: normal; font-weight: 400; font-size: .85rem; color: var(--soft) }
.why em.right { color: var(--good-ink) }
blockquote { margin: .8rem 0; padding: .1rem 0 .1rem 1rem; border-left: 3px solid var(--line);
  max-width: 56rem; overflow-wrap: anywhere }
.why h3 { font-size: .95rem; margin: .9rem 0 .3rem }
.why h3 small { color: var(--soft); font-weight: 400 }
.way { list-style: none; margin: 0 0 1rem; padding: 0 }
.way li { max-width: none; border-left: 2px solid var(--mark); padding: .1rem 0 .7rem .9rem }
.way li > small { color: var(--soft) }
.read { margin: .25rem 0 0; line-height: 1.75; overflow-wrap: anywhere; max-width: 56rem }
.read .cut { color: var(--soft) }
.read span { border-radius: 3px; padding: .1em 0 }
.h1 { background: rgba(0, 114, 178, .10) } .h2 { background: rgba(0, 114, 178, .22) }
.h3 { background: rgba(0, 114, 178, .36) } .h4 { background: rgba(0, 114, 178, .52) }
.h5 { background: rgba(0, 114, 178, .70); color: #fff }
.no { text-decoration: underline wavy rgba(213, 94, 0, .8); text-underline-offset: .2em }
.bars { border-collapse: collapse; font-size: .88rem; margin: .3rem 0 .2rem }
.bars td { border: 0; padding: .08rem .6rem .08rem 0 }
.bars td:nth-child(2) { width: 12rem; padding: 0 .8rem 0 0 }
.bars i { display: block; height: .55rem; border-radius: 2px; background: var(--mark); min-width: 1px }
.bars i.less { background: #d55e00 }
"""


@dataclass(frozen=True)
class ExplanationPart:
    """Why a text got its labels."""

    explanation: Explanation
    true: tuple[str, ...] = ()
    """Its labels, where they are known."""

    def to_html(self) -> Markup:
        """How it looks."""
        text = f"<blockquote>{escape(shortened(self.explanation.text, EXCERPT))}</blockquote>"
        labels = (self._label(label, i == 0) for i, label in enumerate(self.explanation.labels))
        return Markup(text + "".join(labels))

    def _label(self, label: Label, first: bool) -> str:
        parts = []
        for opinion, path in zip(self.explanation.opinions, label.paths, strict=True):
            stops = "".join(f"<li>{self._stop(opinion, stop, len(path) > 1)}</li>" for stop in path)
            share = f" <small>counts {100 * opinion.share:.0f}%</small>" if opinion.share < 1 else ""
            parts.append(f"<h3>{escape(opinion.name)}{share}</h3><ol class=way>{stops}</ol>")
        chance = f"<small>probability {label.probability:.2f}</small>"
        known = "<em class=right>right</em>" if label.name in self.true else "<em>wrong</em>"
        summary = f"<summary>{escape(shortened(label.name))}{known if self.true else ''}{chance}</summary>"
        return f"<details class=why{' open' if first else ''}>{summary}{''.join(parts)}</details>"

    def _stop(self, opinion: Opinion, stop: Stop, several: bool) -> str:
        name, what = (
            escape(shortened(stop.name)),
            f"score {stop.score:.2f}, probability {stop.probability:.2f}",
        )
        if stop.n_labels > 1:
            head = f"level {stop.level + 1}: <b>{name}</b> <small>{stop.n_labels:,} labels; {what}</small>"
        else:
            head = f"{'the label: ' if several else ''}<b>{name}</b> <small>{what}</small>"
        read = _text(self.explanation.text, opinion, stop) if stop.tokens else ""
        return head + read + (_bars(stop) if stop.words else "")


def _text(text: str, opinion: Opinion, stop: Stop) -> str:
    """The text, the tokens that matter in colour."""
    values = np.array(stop.tokens)
    shades, against = _shades(values, opinion.how), (values < 0) & (opinion.how == "parts")
    parts, at = [], 0
    for token, shade, less in zip(opinion.tokens, shades.tolist(), against.tolist(), strict=True):
        if token.end <= token.start or token.start < at:
            continue
        parts.append(escape(text[at : token.start]))
        own = escape(text[token.start : token.end])
        kind = f"h{shade}" if shade else "no" if less else ""
        parts.append(f"<span class={kind}>{own}</span>" if kind else own)
        at = token.end
    rest = shortened(text[at:], UNREAD)
    if rest:
        parts.append(f" <span class=cut>{escape(rest)}</span>")
    return f"<p class=read>{''.join(parts)}</p>"


def _shades(values: npt.NDArray[Any], how: str) -> npt.NDArray[np.int64]:
    """0 to SHADES: how far a token is above the others, of the one that is furthest."""
    above = values - (values.mean() if how == "parts" else np.median(values))
    most = max(float(above.max(initial=0)), 1e-12)
    return np.asarray(np.clip(np.ceil(SHADES * above / most - 0.5), 0, SHADES), np.int64)


def _bars(stop: Stop) -> str:
    """The words that weigh most, and the sum of the others."""
    shown, rest = stop.words[:WORDS], stop.words[WORDS:]
    most, rows = abs(shown[0][1]) or 1.0, []
    for word, part in shown:
        kind = " class=less" if part < 0 else ""
        width = max(1, round(100 * abs(part) / most))
        bar = f"<i{kind} style=width:{width}%></i>"
        rows.append(f"<tr><td>{escape(shortened(word, 40))}<td>{bar}<td class=number>{part:+.2f}")
    if rest:
        total = sum(part for _, part in rest)
        rows.append(f"<tr><td class=soft>{len(rest)} more words<td><td class=number>{total:+.2f}")
    rows.append(f"<tr><td class=soft>before any word<td><td class=number>{stop.bias:+.2f}")
    return f"<table class=bars>{''.join(rows)}</table>"
