"""Messages say what, where and what to do; errors survive a process boundary."""

import pickle
from pathlib import Path

import pytest

from xmcascade import errors
from xmcascade.errors import DataError, MissingExtraError, Place, SettingError, XmcError

FAMILY = [getattr(errors, name) for name in errors.__all__ if name.endswith("Error")]


@pytest.mark.parametrize("kind", FAMILY)
def test_every_error_is_caught_as_xmc_error_and_keeps_its_parts(kind):
    error = kind("it is broken", where="a.csv, line 3", remedy="mend it")
    assert isinstance(error, XmcError)
    assert str(error) == "a.csv, line 3: it is broken. Remedy: mend it"
    assert (error.what, error.where, error.remedy) == ("it is broken", "a.csv, line 3", "mend it")


@pytest.mark.parametrize("kind", FAMILY)
def test_errors_cross_a_process_boundary(kind):
    error = pickle.loads(pickle.dumps(kind("broken", where="here", remedy="mend it")))
    assert type(error) is kind
    assert (str(error), error.remedy) == ("here: broken. Remedy: mend it", "mend it")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "broken"),
        ({"where": "here"}, "here: broken"),
        ({"remedy": "mend it"}, "broken. Remedy: mend it"),
    ],
)
def test_parts_that_are_not_given_leave_no_trace(given, message):
    assert str(DataError("broken", **given)) == message


def test_errors_are_also_what_python_calls_them():
    assert issubclass(SettingError, ValueError)
    assert issubclass(MissingExtraError, ImportError)


@pytest.mark.parametrize(
    ("place", "said"),
    [
        (Place("a.csv"), "a.csv"),
        (Place(Path("a.csv"), 3), "a.csv, line 3"),
        (Place("a.csv", 3, "labels"), "a.csv, line 3, field 'labels'"),
        (Place("a.csv", field="labels"), "a.csv, field 'labels'"),
        (Place("the table", 3, unit="row"), "the table, row 3"),
    ],
)
def test_a_place_says_only_what_is_known(place, said):
    assert str(place) == said
