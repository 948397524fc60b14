"""A page is one file, carries no script, and text from outside can only be text."""

import re
from html.parser import HTMLParser

import pytest

from xmcascade.report import Markup, Page, Picture, Table
from xmcascade.report.page import Text

NASTY = "<script>alert(1)</script>\"'&`<img src=x onerror=alert(1)>`"


class Seen(HTMLParser):
    def __init__(self, html):
        super().__init__()
        self.tags, self.attributes, self.words = [], [], ""
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [name for name, _ in attrs]

    def handle_data(self, data):
        self.words += data


def nasty_page():
    page = Page(NASTY, NASTY)
    drawn = Picture(Markup('<svg><g id="a"/><use href="#a"/></svg>'), NASTY)
    page.section(NASTY, NASTY, Table([NASTY, "n"], [[NASTY, 1], [None, 2.5]]), drawn, drawn)
    return page


def test_text_from_outside_stays_text():
    seen = Seen(nasty_page().to_html())
    assert not {"script", "img"} & set(seen.tags)
    assert not [name for name in seen.attributes if name.startswith("on")]
    assert seen.words.count("<script>alert(1)</script>") >= 5


def test_a_page_needs_nothing_from_elsewhere():
    html = nasty_page().to_html()
    assert "http://" not in html and "https://" not in html and "@import" not in html
    assert "default-src 'none'" in html


def test_names_in_drawings_do_not_meet():
    html = nasty_page().to_html()
    names = re.findall(r'\bid="([^"]+)"', html)
    assert len(names) == len(set(names)) == 3
    assert all(target in names for target in re.findall(r'<use href="#([^"]+)"', html))


def test_numbers_stand_right_and_gaps_are_shown():
    html = (
        Table(["name", "value"], [["a", 1234], ["b", float("nan")], ["c", None]], best=[(0, 1)])
        .to_html()
        .text
    )
    assert '<td class="number best">1,234</td>' in html
    assert html.count("–") == 2
    assert '<th scope=col class="number">value</th>' in html


def test_code_in_text():
    assert Text("use `a<b`").to_html().text == "<p>use <code>a&lt;b</code></p>"


def test_a_page_is_written_whole(tmp_path):
    page = nasty_page()
    page.write(tmp_path / "deep" / "page.html")
    assert (tmp_path / "deep" / "page.html").read_text() == page.to_html()
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["page.html"]


def test_lone_surrogates_do_not_stop_it(tmp_path):
    page = Page("a\ud800b")
    page.write(tmp_path / "page.html")
    assert b"a?b" in (tmp_path / "page.html").read_bytes()


def test_a_table_of_the_wrong_width_is_refused():
    with pytest.raises(IndexError):
        Table(["a", "b"], [["only one"]]).to_html()
