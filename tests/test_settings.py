"""Settings check themselves, go to JSON and back, and can be given as text."""

import json
from dataclasses import dataclass, field
from typing import Any, Literal

import pytest

from xmcascade.errors import SettingError
from xmcascade.settings import Settings


@dataclass(frozen=True, kw_only=True)
class Words(Settings):
    min_df: int = 1
    ngrams: tuple[int, int] = (1, 2)

    def check(self) -> None:
        self.require(self.min_df >= 1, "min_df", "from 1 up")


@dataclass(frozen=True, kw_only=True)
class Model(Settings):
    rate: float = 0.5
    name: str | None = None
    mode: Literal["fast", "exact"] = "fast"
    on: bool = False
    sizes: tuple[int, ...] = ()
    words: Words = field(default_factory=Words)
    extra: Any = None


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"rate": "high"}, "rate is 'high'. Remedy: allowed: a number"),
        ({"rate": float("nan")}, "rate is nan. Remedy: allowed: a number"),
        ({"rate": True}, "rate is True. Remedy: allowed: a number"),
        ({"name": 3}, "name is 3. Remedy: allowed: a string or null"),
        ({"mode": "slow"}, "mode is 'slow'. Remedy: allowed: 'fast', 'exact'"),
        ({"on": 1}, "on is 1. Remedy: allowed: true or false"),
        ({"sizes": 3}, "sizes is 3. Remedy: allowed: (a whole number, ...)"),
        ({"sizes": [1, "2"]}, "sizes is (1, '2'). Remedy: allowed: (a whole number, ...)"),
        ({"words": 3}, "words is 3. Remedy: allowed: Words"),
        ({"words": {"min_df": 0}}, "min_df is 0. Remedy: allowed: from 1 up"),
        ({"words": {"min_df": 1.5}}, "min_df is 1.5. Remedy: allowed: a whole number"),
        ({"words": {"min_df": True}}, "min_df is True. Remedy: allowed: a whole number"),
        ({"words": {"ngrams": [1]}}, "ngrams is (1,). Remedy: allowed: (a whole number, a whole number)"),
        ({"words": {"min": 1}}, "there is no setting 'min'. Remedy: the settings are: min_df, ngrams"),
        ({"name": {"a": 1}}, "name is {'a': 1}. Remedy: allowed: a string or null"),
    ],
)
def test_a_message_names_the_setting_its_value_and_what_is_allowed(values, message):
    with pytest.raises(SettingError) as caught:
        Model().with_values(values)
    assert str(caught.value) == message


def test_a_message_does_not_repeat_a_long_value():
    with pytest.raises(SettingError) as caught:
        Model(rate="x" * 10_000)
    assert len(str(caught.value)) < 150


@pytest.mark.parametrize(
    "model",
    [Model(), Model(rate=1, name="a", on=True, sizes=(1, 2)), Model(words=Words(min_df=3, ngrams=(2, 3)))],
)
def test_to_json_and_back(model):
    assert Model.from_dict(json.loads(json.dumps(model.to_dict()))) == model


@pytest.mark.parametrize(
    ("text", "changed"),
    [
        ("rate=2", Model(rate=2)),
        ("rate=1e-3", Model(rate=0.001)),
        ("name=cat", Model(name="cat")),
        ("name=null", Model(name=None)),
        ('name="3"', Model(name="3")),
        ("name=a=b", Model(name="a=b")),
        ("on=true", Model(on=True)),
        ("sizes=[1, 2]", Model(sizes=(1, 2))),
        ("words.min_df=3", Model(words=Words(min_df=3))),
        (" rate=2", Model(rate=2)),
    ],
)
def test_values_given_as_text(text, changed):
    assert Model().with_text([text]) == changed


def test_later_text_wins_and_nested_values_add_up():
    model = Model().with_text(["words.min_df=3", "words.ngrams=[1, 1]", "words.min_df=4"])
    assert model.words == Words(min_df=4, ngrams=(1, 1))


@pytest.mark.parametrize(
    "text", ["rate", "", "words.what=1", "rate.what=1", "what=1", "=1", "rate=NaN", "rate=" + "[" * 9999]
)
def test_text_that_is_no_setting_is_refused(text):
    with pytest.raises(SettingError):
        Model().with_text([text])


def test_a_copy_leaves_the_original():
    model = Model()
    assert model.with_values({"words": {"min_df": 9}}).words.min_df == 9
    assert model == Model()


def test_tuples_of_tuples_go_to_json_and_back():
    @dataclass(frozen=True, kw_only=True)
    class Reads(Settings):
        layers: tuple[tuple[int, ...], ...] | None = None

    given = Reads(layers=((1, 2), (3,)))
    assert Reads.from_dict(json.loads(json.dumps(given.to_dict()))) == given
    assert Reads().with_text(["layers=[[1, 2], [3]]"]) == given
    with pytest.raises(SettingError, match=r"layers is \(\(1, 'x'\),\)"):
        Reads(layers=[[1, "x"]])
