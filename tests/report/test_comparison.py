"""Tables tell the truth: what is best, what is significant, what failed; and text stays text."""

import json

import pytest

from report.small import judged_rows
from xmcascade.errors import SettingError
from xmcascade.report.comparison import SHOWN, megabytes, seconds


def test_all_are_compared_with_the_best_or_with_the_one_that_is_named():
    found = judged_rows([0.6, 0.9, 0.89])
    assert found.baseline == "method 1" and list(found.tested) == ["method 0", "method 2"]
    worse, alike = (found.tested[name]["P@1"] for name in found.tested)
    assert worse.significant and worse.difference == pytest.approx(-30) and worse.high < 0
    assert not alike.significant and alike.difference == pytest.approx(-1)
    assert list(judged_rows([0.6, 0.9], baseline="method 0").tested) == ["method 1"]
    assert judged_rows([0.6, 0.9], baseline="broken", error="x").baseline == "method 1"
    with pytest.raises(SettingError, match="baseline 'method 7' is not compared"):
        judged_rows([0.6, 0.9], baseline="method 7")


def test_many_methods_need_stronger_evidence():
    pair = judged_rows([0.9, 0.87]).tested["method 1"]["P@1"]
    shares = [0.9, 0.87, *[0.899] * 8]
    many = judged_rows(shares).tested["method 1"]["P@1"]
    assert (pair.difference, pair.low) == (many.difference, many.low)
    assert pair.p_value < many.p_value <= 9 * pair.p_value + 1e-9
    assert pair.significant and not many.significant


def test_the_best_of_each_column_is_marked_and_failures_have_no_numbers():
    found = judged_rows([0.6, 0.9], error="no memory")
    table = found.quality()
    assert table.columns[1:] == list(SHOWN)
    assert {(1, x) for x in range(1, 8)} == set(table.best)
    assert table.rows[2] == ["broken", *[None] * 7]
    costs = found.costs()
    best = {costs.columns[x]: [y for y, at in costs.best if at == x] for x in range(1, len(costs.columns))}
    assert best["training"] == [0] and best["one document"] == [0]
    assert best["documents/s"] == [0, 1]  # equals are all marked
    assert [row[0].text if row[0] else None for row in [costs.rows[0][1:], costs.rows[2][1:]]] == [
        "1.0 s",
        None,
    ]


def test_markdown_and_json():
    nasty = "peer|x <b>*`_[a](b)"
    found = judged_rows([0.6, 0.9], names=["good", nasty], error="first\n| line")
    markdown = found.to_markdown()
    rows = [line for line in markdown.splitlines() if line.startswith("|")]
    assert r"peer\|x \<b\>\*\`\_\[a\](b)" in markdown and r"- broken: first \| line" in markdown
    assert "**90.00** (" in markdown and "\\* (" in markdown
    assert all(line.replace(r"\|", "").count("|") == rows[0].count("|") for line in rows[:4])
    read = json.loads(found.to_json())
    assert read["rows"][1]["method"] == nasty and read["baseline"] == nasty
    assert read["differences"]["good"]["P@1"]["significant"] is True
    assert read["rows"][0]["slices"]["head"]["R@5"] is not None and "NaN" not in found.to_json()


def test_numbers_as_people_say_them():
    assert [seconds(value) for value in (0.0, 0.0999, 1.25, 119, 121, 8000)] == [
        "0.00 ms", "100 ms", "1.2 s", "119 s", "2.0 min", "2.2 h",
    ]  # fmt: skip
    assert [megabytes(value) for value in (9.96, 1023, 1024 * 12)] == ["10.0 MB", "1,023 MB", "12 GB"]
