"""Tables of any library, and Parquet: the same corpus from all of them, and bad rows named."""

import datetime
import io
import json

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from reference.files import documents, parquet
from xmcascade.corpus import Corpus, read_corpus, tables
from xmcascade.errors import DataError

COLUMNS = {
    "text": ["red apple", "green pear", "blue plum"],
    "labels": [["red", "fruit"], ["fruit"], []],
    "id": ["a", "b", "c"],
    "weights": [[0.5, 1.0], [2.0], []],
}
EXPECTED = [
    ("red apple", "a", {"red": 0.5, "fruit": 1}),
    ("green pear", "b", {"fruit": 2}),
    ("blue plum", "c", {}),
]


class Dataset:
    """As much of datasets.Dataset as matters here."""

    def __init__(self, columns):
        self._columns, self.column_names = columns, list(columns)

    def __getitem__(self, name):
        return self._columns[name]


class Stream:
    """Any library's table that speaks Arrow."""

    def __init__(self, columns):
        self._table = pa.table(columns)

    def __arrow_c_stream__(self, requested_schema=None):
        return self._table.__arrow_c_stream__(requested_schema)


KINDS = {
    "dict": dict,
    "pandas": pd.DataFrame,
    "pandas, other index": lambda columns: pd.DataFrame(columns, index=[7, 7, 3]),
    "polars": pl.DataFrame,
    "arrow": pa.table,
    "arrow batches": lambda columns: pa.Table.from_batches(pa.table(columns).to_batches(2)),
    "datasets": Dataset,
    "stream": Stream,
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_table_gives_the_same_corpus(kind):
    assert documents(Corpus.from_table(KINDS[kind](COLUMNS))) == EXPECTED


@pytest.mark.parametrize("kind", KINDS)
def test_labels_may_be_one_string(kind):
    table = KINDS[kind]({"title": ["a", "b", "c"], "tags": ["x| y z", "", "x"]})
    corpus = Corpus.from_table(table, text="title", labels="tags", separator="|")
    assert documents(corpus) == [("a", None, {"x": 1, "y z": 1}), ("b", None, {}), ("c", None, {"x": 1})]


@pytest.mark.parametrize("kind", ["dict", "pandas", "polars", "arrow", "datasets"])
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"text": ["a", None, "c"]},
            "row 2, field 'text': the text is missing. Remedy: give every document a text",
        ),
        ({"labels": [["a"], None, ["c"]]}, "row 2, field 'labels': the labels are "),
        ({"labels": [["a"], ["b", "b"], []]}, "row 2, field 'labels': the label 'b' occurs twice"),
        (
            {"labels": [[1], [2], [3]]},
            "row 1, field 'labels': label 1 is a number (1), not a string. Remedy: write \"1\"",
        ),
        (
            {"labels": [datetime.date(2024, 1, 1)] * 3},
            "row 1, field 'labels': the labels are of type date, not a list",
        ),
        ({"weights": [[1.0, 1.0], [-1.0], []]}, "row 2, field 'weights': weight 1 is a number (-1.0)"),
        ({"id": [1.5, 2.5, 3.5]}, "row 1, field 'id': the id is a number (1.5)"),
    ],
)
def test_a_message_names_table_row_field_and_remedy(kind, change, message):
    columns = {name: COLUMNS[name] for name in ("text", "labels", *({"weights"} & change.keys()))}
    table = KINDS[kind]({**columns, **change})
    with pytest.raises(DataError) as caught:
        Corpus.from_table(table)
    assert str(caught.value).startswith(f"the {type(table).__name__}, {message}")
    assert "Remedy: " in str(caught.value)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (
            {"text": ["a"]},
            "the dict: there is no column 'labels'; the columns are 'text'. Remedy: name the right column",
        ),
        (pd.DataFrame({"x": ["a"]}), "the DataFrame: there is no column 'text'; the columns are 'x'"),
        (
            pd.DataFrame([["a", "b", ["x"]]], columns=["text", "text", "labels"]),
            "the DataFrame: the column 'text' is there twice",
        ),
        (
            pa.table([["a"], ["b"], [["x"]]], names=["text", "text", "labels"]),
            "the Table: the column 'text' is there twice",
        ),
        (
            {"text": ["a"], "labels": []},
            "the dict: the columns differ in length: 'text' 1, 'labels' 0. Remedy: make them equ",
        ),
        (
            {"text": 3, "labels": 4},
            "the dict: cannot be read ('int' object is not iterable). Remedy: give every column one",
        ),
        (
            [["a"]],
            "the list: not a table. Remedy: give a pandas, polars or Arrow table, a datasets.Dataset",
        ),
        (None, "the NoneType: not a table"),
    ],
)
def test_what_is_not_a_table_of_documents(table, message):
    with pytest.raises(DataError) as caught:
        Corpus.from_table(table)
    assert str(caught.value).startswith(message)


def test_a_pandas_column_may_hold_mixed_types_and_the_row_is_named():
    frame = pd.DataFrame({"text": ["a", "b"], "labels": [["x"], ["y", 3]], "other": [1, "one"]})
    with pytest.raises(DataError, match="the DataFrame, row 2, field 'labels': label 2 is a number"):
        Corpus.from_table(frame)
    assert (
        Corpus.from_table(frame, on_error="skip").left_out[0].first == "the DataFrame, row 2, field 'labels'"
    )


@pytest.mark.parametrize("missing", [None, float("nan"), pd.NA])
def test_missing_labels_ids_and_weights_in_pandas(missing):
    frame = pd.DataFrame(
        {"text": ["a", "b"], "labels": [["x"], missing], "id": ["k", missing], "weights": [[2.0], missing]}
    )
    corpus = Corpus.from_table(frame, need_labels=False)
    assert documents(corpus) == [("a", "k", {"x": 2}), ("b", "1", {})]


def test_rows_keep_their_number_over_batches(monkeypatch, tmp_path):
    monkeypatch.setattr(tables, "BATCH_ROWS", 2)
    columns = {"text": ["a", "b", "c", "d", ""], "labels": [["x"]] * 5}
    for kind in ("pandas", "polars", "arrow"):
        with pytest.raises(DataError, match="row 5, field 'text': the text is empty"):
            Corpus.from_table(pd.DataFrame(columns) if kind == "pandas" else KINDS[kind](columns))
    path = tmp_path / "a.parquet"
    path.write_bytes(parquet(**columns))
    with pytest.raises(DataError, match=r"a\.parquet, row 5, field 'text': the text is empty"):
        read_corpus(path)
    assert list(read_corpus(path, on_error="skip").texts) == ["a", "b", "c", "d"]


def test_tables_of_numpy_lists_and_dictionaries():
    frame = pd.DataFrame(
        {"text": pd.Categorical(["a", "b"]), "labels": [np.array(["x", "y"]), np.array([], str)]}
    )
    assert documents(Corpus.from_table(frame)) == [("a", None, {"x": 1, "y": 1}), ("b", None, {})]
    table = pa.table({"text": pa.array(["a", "b"]).dictionary_encode(), "labels": [["x"], []]})
    assert documents(Corpus.from_table(table)) == [("a", None, {"x": 1}), ("b", None, {})]


def written(path, table):
    pq.write_table(table, path)
    return path


def labelled(**metadata):
    table = pa.table({"text": ["a"], "labels": [["x"]]})
    return table.replace_schema_metadata({f"xmcascade.{key}": value for key, value in metadata.items()})


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        (
            {"labels": "{"},
            "a.parquet: the metadata 'xmcascade.labels' is not a list of strings. Remedy: write the",
        ),
        ({"labels": "[1]"}, "a.parquet: the metadata 'xmcascade.labels' is not a list of strings"),
        ({"labels": "[" * 100_000}, "a.parquet: the metadata 'xmcascade.labels' is not a list of strings"),
        ({"labels": '["x", "x"]'}, "a.parquet: the label name 'x' occurs twice, as number 0 and 1"),
        ({"labels": '["x", "\\ud800"]'}, "a.parquet, label name 2: the name holds U+D800"),
        (
            {"labels": '["y"]'},
            "a.parquet, row 1, field 'labels': the label 'x' is not among the 1 label names",
        ),
        ({"labels": '["x"]', "label_texts": "[]"}, "a.parquet: the metadata has 0 label texts for 1 labels"),
        ({"label_texts": '["x"]'}, "a.parquet: the metadata has 1 label texts for 0 labels"),
        (
            {"labels": '["x"]', "label_texts": '["\\ud800"]'},
            "a.parquet, label 'x': the label text holds U+D800",
        ),
    ],
)
def test_labels_in_the_metadata_are_checked(tmp_path, metadata, message):
    with pytest.raises(DataError) as caught:
        read_corpus(written(tmp_path / "a.parquet", labelled(**metadata)))
    assert str(caught.value).startswith(message)


def test_labels_in_the_metadata_are_kept(tmp_path):
    metadata = {"labels": json.dumps(["z", "x"]), "label_texts": json.dumps(["zed", "ex"])}
    corpus = read_corpus(written(tmp_path / "a.parquet", labelled(**metadata)))
    assert (list(corpus.label_names), list(corpus.label_texts)) == (["z", "x"], ["zed", "ex"])


@pytest.mark.parametrize("data", [b"", b"PAR1", b"not parquet at all", b"PAR1" + b"\0" * 100 + b"PAR1"])
def test_a_file_that_is_not_parquet(tmp_path, data):
    path = tmp_path / "a.parquet"
    path.write_bytes(data)
    with pytest.raises(
        DataError, match=r"a\.parquet: cannot be read .*Remedy: the file is damaged or not Parquet"
    ):
        read_corpus(path)


def test_values_that_python_cannot_hold_are_an_error_of_the_file(tmp_path):
    table = pa.table({"text": ["a"], "labels": [["x"]], "id": pa.array([2**62], pa.timestamp("us"))})
    with pytest.raises(DataError, match=r"a\.parquet: cannot be read"):
        read_corpus(written(tmp_path / "a.parquet", table))


def test_text_that_is_not_utf8_in_a_parquet_file(tmp_path):
    bad = pa.array([b"a \xff"]).cast(pa.binary()).view(pa.string())
    with pytest.raises(DataError, match=r"a\.parquet"):
        read_corpus(written(tmp_path / "a.parquet", pa.table({"text": bad, "labels": [["x"]]})))


def test_a_parquet_file_is_read_a_row_group_at_a_time(tmp_path):
    path = tmp_path / "a.parquet"
    text = "x" * 10_000
    schema = pa.schema({"text": pa.string(), "labels": pa.list_(pa.string())})
    with pq.ParquetWriter(path, schema) as writer:
        for _ in range(40):
            writer.write_table(pa.table({"text": [text] * 100, "labels": [["x"]] * 100}, schema))
    before = pa.total_allocated_bytes()
    peak = []

    class Watching(tables.CorpusBuilder):
        def add(self, *args, **values):
            peak.append(pa.total_allocated_bytes() - before)
            return super().add(*args, **values)

    from xmcascade.corpus import reading

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reading, "CorpusBuilder", Watching)
        assert read_corpus(path).n_docs == 4000
    assert max(peak) < 20 << 20  # of 40 MB of text


def test_a_parquet_buffer_reads_as_a_table():
    table = pq.read_table(io.BytesIO(parquet(text=["a"], labels=[["x"]])))
    assert documents(Corpus.from_table(table)) == [("a", None, {"x": 1})]


def test_several_columns_and_numbers_with_names(tmp_path):
    names = tmp_path / "names.txt"
    names.write_text("zero\none\n")
    table = pa.table({"title": ["a", None], "body": ["b", "c"], "tags": [[1], [0, 1]]})
    pq.write_table(table, tmp_path / "a.parquet")
    how = {"text": "title+body", "labels": "tags", "label_names": str(names)}
    for corpus in (tables.read_table(table, **how), tables.read_table(table.to_pandas(), **how),
                   read_corpus(tmp_path / "a.parquet", **how)):  # fmt: skip
        assert list(corpus.texts) == ["a\nb", "c"]
        assert [corpus.label_set(i) for i in range(2)] == [["one"], ["zero", "one"]]
    with pytest.raises(DataError, match=r"row 1, field 'tags': a number .2. is not the number of a label"):
        tables.read_table(pa.table({"title": ["a"], "body": ["b"], "tags": [[2]]}), **how)
