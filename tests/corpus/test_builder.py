"""The one door: what is wrong with a document is said with source, line, field and remedy, or counted."""

import datetime

import numpy as np
import pandas as pd
import pytest

from reference.files import documents
from xmcascade.corpus.builder import CorpusBuilder
from xmcascade.corpus.checks import is_missing
from xmcascade.errors import DataError, SettingError

FIELDS = ("title", "tags", "key", "gains")
AT = "a.jsonl, line 7, field "

PROBLEMS = [  # document, reason, message
    ({"text": None}, "text missing", AT + "'title': the text is missing. Remedy: give every document a text"),
    ({"text": float("nan")}, "text missing", AT + "'title': the text is missing"),
    ({"text": pd.NA}, "text missing", AT + "'title': the text is missing"),
    (
        {"text": 3},
        "text not a string",
        AT + "'title': the text is a number (3). Remedy: write it as a string",
    ),
    ({"text": True}, "text not a string", AT + "'title': the text is a truth value (True)"),
    ({"text": ["a"]}, "text not a string", AT + "'title': the text is a list"),
    ({"text": b"a"}, "text not a string", AT + "'title': the text is of type bytes"),
    ({"text": ""}, "text empty", AT + "'title': the text is empty. Remedy: write a text, or skip"),
    ({"text": " \t\u2003"}, "text empty", AT + "'title': the text is empty"),
    (
        {"text": "a\ud800"},
        "text not Unicode",
        AT + "'title': the text holds U+D800 at character 2. Remedy: rem",
    ),
    (
        {"labels": None},
        "labels not a list",
        AT + "'tags': the labels are null, not a list. Remedy: write a list",
    ),
    (
        {"labels": "cat"},
        "labels not a list",
        AT + "'tags': 'cat' is a string, not a list of labels. Remedy: write ['cat']",
    ),
    ({"labels": b"cat"}, "labels not a list", AT + "'tags': the labels are of type bytes, not a list"),
    ({"labels": {"cat": 1}}, "labels not a list", AT + "'tags': the labels are an object, not a list"),
    ({"labels": 3}, "labels not a list", AT + "'tags': the labels are a number (3), not a list"),
    ({"labels": float("nan")}, "labels not a list", AT + "'tags': the labels are NaN, not a list"),
    (
        {"labels": datetime.date.today()},
        "labels not a list",
        AT + "'tags': the labels are of type date, not a list",
    ),
    (
        {"labels": np.array("cat")},
        "labels not a list",
        AT + "'tags': the labels are of type ndarray, not a list",
    ),
    (
        {"labels": ["a", 3]},
        "label not a string",
        AT + "'tags': label 2 is a number (3), not a string. Remedy: write \"3\"",
    ),
    ({"labels": [True]}, "label not a string", AT + "'tags': label 1 is a truth value (True), not a string"),
    ({"labels": [10**5000]}, "label not a string", AT + "'tags': label 1 is a huge number, not a string"),
    (
        {"labels": [["a"]]},
        "label not a string",
        AT + "'tags': label 1 is a list, not a string. Remedy: write every",
    ),
    ({"labels": [None]}, "label not a string", AT + "'tags': label 1 is null, not a string"),
    (
        {"labels": ["a", " "]},
        "label empty",
        AT + "'tags': label 2 is empty. Remedy: write a name, or remove the label",
    ),
    ({"labels": ["\udfff"]}, "label not Unicode", AT + "'tags': the label holds U+DFFF at character 1"),
    (
        {"labels": ["a", "b", "a"]},
        "label repeated",
        AT + "'tags': the label 'a' occurs twice. Remedy: write each label once",
    ),
    (
        {"weights": 3},
        "weights not a list",
        AT + "'gains': the weights are a number (3), not a list. Remedy: write a li",
    ),
    ({"weights": "ab"}, "weights not a list", AT + "'gains': the weights are 'ab', not a list"),
    (
        {"weights": [1]},
        "weights do not fit",
        AT + "'gains': 1 weights for 2 labels. Remedy: give one for each label",
    ),
    (
        {"weights": [1, 0]},
        "weight not a positive number",
        AT + "'gains': weight 2 is a number (0). Remedy: use numbers a",
    ),
    ({"weights": [1, "2"]}, "weight not a positive number", AT + "'gains': weight 2 is '2'"),
    ({"weights": [1, None]}, "weight not a positive number", AT + "'gains': weight 2 is null"),
    (
        {"weights": [1, True]},
        "weight not a positive number",
        AT + "'gains': weight 2 is a truth value (True)",
    ),
    ({"weights": [1, float("nan")]}, "weight not a positive number", AT + "'gains': weight 2 is NaN"),
    (
        {"weights": [1, float("inf")]},
        "weight not a positive number",
        AT + "'gains': weight 2 is a number (inf)",
    ),
    ({"weights": [1, 1e-60]}, "weight not a positive number", AT + "'gains': weight 2 is a number (1e-60)"),
    ({"weights": [1, 10**5000]}, "weight not a positive number", AT + "'gains': weight 2 is a huge number"),
    ({"weights": [1, 1j]}, "weight not a positive number", AT + "'gains': weight 2 is of type complex"),
    (
        {"doc_id": 1.5},
        "id not a string",
        AT + "'key': the id is a number (1.5). Remedy: write it as a string or an",
    ),
    ({"doc_id": True}, "id not a string", AT + "'key': the id is a truth value (True)"),
    ({"doc_id": 10**5000}, "id not a string", AT + "'key': the id is a huge number"),
    ({"doc_id": "\ud83d"}, "id not Unicode", AT + "'key': the id holds U+D83D at character 1"),
]


def add(builder, given):
    values = {"text": "a text", "labels": ["x", "y"], "line": 7, **given}
    return builder.add(values.pop("text"), values.pop("labels"), **values)


@pytest.mark.parametrize(("given", "reason", "message"), PROBLEMS)
def test_a_message_names_source_line_field_and_remedy(given, reason, message):
    with pytest.raises(DataError) as caught:
        add(CorpusBuilder(source="a.jsonl", fields=FIELDS), given)
    assert str(caught.value).startswith(message)
    assert "Remedy: " in str(caught.value)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(("given", "reason", "message"), PROBLEMS)
def test_skip_counts_the_reason_and_where_it_was_first(given, reason, message):
    builder = CorpusBuilder(source="a.jsonl", fields=FIELDS, on_error="skip")
    add(builder, given)
    add(builder, {**given, "line": 8})
    add(builder, {"labels": ["kept"], "line": 9})
    corpus = builder.build()
    (found,) = corpus.left_out
    assert (found.reason, found.count) == (reason, 2)
    assert message.startswith(found.first)
    assert builder.n_problems == 2
    assert corpus.label_set(corpus.n_docs - 1) == ["kept"]


@pytest.mark.parametrize(("given", "reason", "message"), PROBLEMS)
def test_a_document_left_out_leaves_no_label_behind(given, reason, message):
    if reason == "label repeated":
        return
    builder = CorpusBuilder(on_error="skip")
    labels = given.get("labels", ["x", "y"])
    if isinstance(labels, list):  # a new label before the bad one
        given = {**given, "labels": ["new", *labels]}
    if isinstance(given.get("weights"), list):
        given = {**given, "weights": [1, *given["weights"]]}
    assert not add(builder, given)
    assert add(builder, {"labels": ["kept"]})
    assert list(builder.build().label_names) == ["kept"]


def test_a_repeated_label_costs_only_itself():
    builder = CorpusBuilder(on_error="skip")
    assert builder.add("a text", ["b", "a", "b"], weights=[1, 2, 3])
    assert documents(builder.build()) == [("a text", None, {"b": 1, "a": 2})]


def test_repeats_in_a_document_left_out_are_not_counted():
    builder = CorpusBuilder(on_error="skip")
    builder.add("", ["a", "a"])
    assert [found.reason for found in builder.build().left_out] == ["text empty"]


def test_empty_text_can_be_kept():
    builder = CorpusBuilder(empty_text="keep")
    builder.add("", ["a"])
    builder.add("  ", [])
    assert list(builder.build().texts) == ["", "  "]


@pytest.mark.parametrize(
    "labels", [("b", "a"), np.array(["b", "a"]), pd.Series(["b", "a"]), iter(["b", "a"])]
)
def test_labels_may_be_any_iterable(labels):
    builder = CorpusBuilder()
    builder.add("a text", labels, weights=np.array([1, 2], np.float32))
    assert documents(builder.build()) == [("a text", None, {"b": 1, "a": 2})]


def test_labels_are_numbered_by_name_and_rows_sorted():
    builder = CorpusBuilder()
    builder.add("a text", ["b", "c", "a"], weights=[1, 2, 3])
    corpus = builder.build()
    assert list(corpus.label_names) == ["a", "b", "c"]
    assert corpus.labels.indices.tolist() == [0, 1, 2]
    assert corpus.labels.data.tolist() == [3, 1, 2]


def test_weights_that_come_late_do_not_shift():
    builder = CorpusBuilder()
    builder.add("one", ["a", "b"])
    builder.add("two", ["a"], weights=[0.5])
    builder.add("three", ["b"])
    assert [weights for _, _, weights in documents(builder.build())] == [
        {"a": 1, "b": 1},
        {"a": 0.5},
        {"b": 1},
    ]


def test_a_document_without_an_id_among_others_goes_by_its_number():
    builder = CorpusBuilder()
    for doc_id in (None, "x", None, 7, np.int64(8)):
        builder.add("a text", [], doc_id=doc_id)
    assert list(builder.build().ids) == ["0", "x", "2", "7", "8"]


def test_without_any_id_there_are_none():
    builder = CorpusBuilder(on_error="skip")
    builder.add("a text", [])
    builder.add("", [], doc_id="of a document left out")
    assert builder.build().ids is None


def test_given_label_names_keep_their_order_and_allow_no_other():
    builder = CorpusBuilder(label_names=["z", "a"], source="a.txt")
    builder.add("a text", ["a"])
    with pytest.raises(
        DataError, match=r"a\.txt, line 2, field 'labels': the label 'b' is not among the 2 label"
    ):
        builder.add("a text", ["b"], line=2)
    assert list(builder.build().label_names) == ["z", "a"]


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (
            ["a", "b", "a"],
            "n.txt: the label name 'a' occurs twice, as number 0 and 2. Remedy: give each label",
        ),
        (["a", " "], "n.txt, label name 2: it is empty. Remedy: write a name"),
        (["\ud800"], "n.txt, label name 1: the name holds U+D800 at character 1"),
    ],
)
def test_given_label_names_are_checked(names, message):
    with pytest.raises(DataError) as caught:
        CorpusBuilder(label_names=names, source="n.txt")
    assert str(caught.value).startswith(message)


def test_label_texts_go_to_their_labels_and_are_checked():
    def build(text):
        builder = CorpusBuilder(source="the lists")
        builder.add("a text", ["b", "a"])
        return builder.build(label_texts={"b": text, "other": "x"})

    assert list(build("bee").label_texts) == ["", "bee"]
    for bad, said in ((3, "is a number (3)"), ("\ud800", "holds U+D800")):
        with pytest.raises(DataError) as caught:
            build(bad)
        assert str(caught.value).startswith(f"the lists, label 'b': the label text {said}")


@pytest.mark.parametrize("setting", ["on_error", "empty_text"])
def test_settings_out_of_range(setting):
    with pytest.raises(SettingError, match=f"{setting} is 'never'"):
        CorpusBuilder(**{setting: "never"})


def test_a_document_with_a_hundred_thousand_labels_takes_no_quadratic_time():
    builder = CorpusBuilder(on_error="skip")
    labels = [str(i) for i in range(100_000)]
    builder.add("a text", labels + labels)
    corpus = builder.build()
    assert corpus.labels.nnz == 100_000
    assert corpus.left_out[0].count == 100_000


@pytest.mark.parametrize("value", [None, float("nan"), np.float32("nan"), pd.NA, pd.NaT])
def test_missing_values(value):
    assert is_missing(value)


@pytest.mark.parametrize("value", ["", 0, [], 0.0, "nan", np.array([])])
def test_values_that_are_there(value):
    assert not is_missing(value)
