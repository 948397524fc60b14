"""The page of a comparison: complete, one file, text stays text, and names in plots keep apart."""

import sys
from html.parser import HTMLParser

import pytest

from report.small import judged_rows
from xmcascade.report.comparison_page import _front, _shared, name_boxes, page_of


class Tags(HTMLParser):
    def __init__(self, html):
        super().__init__()
        self.seen, self.words = [], ""
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.seen.append(tag)
        assert not [name for name, _ in attrs if name.startswith("on")]

    def handle_data(self, data):
        self.words += data


def test_sections_and_plots():
    tags = Tags(page_of(judged_rows([0.6, 0.9, 0.89], error="no memory")).to_html())
    assert tags.seen.count("svg") == 3
    for words in ("In short", "Differences", "What failed", "no memory", "not told apart", "method 2"):
        assert words in tags.words


def test_one_method_alone_or_none():
    assert "Differences" not in Tags(page_of(judged_rows([0.5])).to_html()).words
    words = Tags(page_of(judged_rows([], error="no memory")).to_html()).words
    assert "no memory" in words and "Quality" not in words


def test_text_stays_text():
    nasty = "<script>alert(1)</script> $x_1$ \"'&"
    tags = Tags(page_of(judged_rows([0.6, 0.9], names=[nasty, "_b"], error=nasty)).to_html())
    assert "script" not in tags.seen
    assert tags.words.count("<script>alert(1)</script>") > 4
    assert "x_1" in tags.words  # no formula was made of it


def test_without_matplotlib_there_is_a_page_without_plots(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    tags = Tags(page_of(judged_rows([0.6, 0.9])).to_html())
    assert "svg" not in tags.seen and "xmcascade[report]" in tags.words and "90.00" in tags.words


@pytest.mark.parametrize("n", [2, 5, 9])
def test_names_of_points_at_one_place_keep_apart_and_inside(n):
    frame = (0, 0, 600, 400)
    boxes = name_boxes([(300.0, 200.0)] * n, [(120.0, 12.0)] * n, [(297, 150, 303, 250)], frame)
    for i, one in enumerate(boxes):
        assert one[0] >= 0 and one[1] >= 0 and one[2] <= 600 and one[3] <= 400
        assert all(_shared(one, other) == 0 for other in boxes[:i])


def test_a_name_at_the_border_stays_inside():
    ((left, _, right, _),) = name_boxes([(590.0, 200.0)], [(120.0, 12.0)], [], (0, 0, 600, 400))
    assert left >= 0 and right < 590


def test_the_line_joins_what_nothing_beats():
    assert _front([(1, 5), (1, 6), (2, 6), (3, 9), (4, 8)]) == [(1, 6), (3, 9)]
