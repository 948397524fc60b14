"""Plots have one style, are the same bytes for the same numbers, and say what they show."""

import sys

import pytest

from xmcascade.errors import SettingError
from xmcascade.report import figure, picture, save_figure


def drawn():
    with figure(columns=2) as fig:
        fig.axes[0].plot([1, 2, 3], [2, 1, 3], label="a")
        fig.axes[1].set_title("words stay words")
        return fig


def test_a_picture_takes_the_colours_of_its_page_and_says_what_it_shows():
    html = picture(drawn(), 'a "line"').to_html().text
    assert "currentColor" in html and "#808080" not in html
    assert 'aria-label="a &quot;line&quot;"' in html
    assert "words stay words" in html


def test_the_same_plot_is_the_same_bytes(tmp_path):
    assert picture(drawn(), "x") == picture(drawn(), "x")
    for name in ("a.svg", "a.png"):
        save_figure(drawn(), tmp_path / name)
        first = (tmp_path / name).read_bytes()
        save_figure(drawn(), tmp_path / name)
        assert (tmp_path / name).read_bytes() == first


def test_other_formats_are_refused(tmp_path):
    with pytest.raises(SettingError, match=r"\.png or \.svg"):
        save_figure(drawn(), tmp_path / "a.pdf")
    assert not list(tmp_path.iterdir())


def test_without_matplotlib_the_remedy_is_said(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(SettingError, match=r"xmcascade\[report\]"), figure():
        pass
