"""Text formats: what is read, what is refused (file, line, field, remedy), and how formats are guessed."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reference.files import documents, jsonl, npz, packed, parquet
from xmcascade.corpus import read_corpus
from xmcascade.corpus.lines import COMPRESSED
from xmcascade.corpus.reading import ReadSettings, listed, split_labels
from xmcascade.errors import DataError, SettingError

TWO = [("red apple", {"fruit": 1, "red": 1}), ("green pear", {"fruit": 1})]


@pytest.fixture
def write(tmp_path):
    def write(name, data):
        path = tmp_path / name
        path.write_bytes(data if isinstance(data, bytes) else data.encode())
        return path

    return write


def found(corpus):
    return [(text, weights) for text, _, weights in documents(corpus)]


FORMATS = {
    "a.jsonl": jsonl(
        {"text": "red apple", "labels": ["red", "fruit"]}, {"text": "green pear", "labels": ["fruit"]}
    ),
    "a.csv": b"text,labels\nred apple,red; fruit\ngreen pear,fruit\n",
    "a.tsv": b"text\tlabels\nred apple\tred;fruit\ngreen pear\tfruit\n",
    "a.ft": b"__label__red __label__fruit red apple\n__label__fruit green pear\n",
    "a.parquet": parquet(text=["red apple", "green pear"], labels=[["red", "fruit"], ["fruit"]]),
}


@pytest.mark.parametrize("suffix", ["", *COMPRESSED])
@pytest.mark.parametrize("name", FORMATS)
def test_every_format_reads_alike_compressed_or_not(write, name, suffix):
    assert found(read_corpus(write(name + suffix, packed(FORMATS[name], suffix)))) == TWO


@pytest.mark.parametrize("name", [name for name in FORMATS if name != "a.parquet"])
@pytest.mark.parametrize("change", ["windows", "mixed", "mark", "no last end", "blank lines"])
def test_line_ends_marks_and_blank_lines_do_not_matter(write, name, change):
    data = FORMATS[name]
    changed = {
        "windows": data.replace(b"\n", b"\r\n"),
        "mixed": data.replace(b"\n", b"\r\n", 1),
        "mark": b"\xef\xbb\xbf" + data,
        "no last end": data.rstrip(b"\n"),
        "blank lines": b"\n\r\n" + data.replace(b"\n", b"\n\n") + b"\n",
    }[change]
    assert found(read_corpus(write(name, changed))) == TWO


RAW = {"t_texts.txt": b"red apple\ngreen pear\n", "t_labels.txt": b"red fruit\nfruit\n"}


@pytest.mark.parametrize("suffix", ["", *COMPRESSED])
@pytest.mark.parametrize(
    ("texts", "labels"),
    [("t_texts.txt", "t_labels.txt"), ("trn_raw_texts.txt", "trn_labels.txt"), ("X.trn.txt", "Y.trn.txt")],
)
def test_raw_texts_find_the_labels_beside_them(write, texts, labels, suffix):
    write(labels + suffix, packed(RAW["t_labels.txt"], suffix))
    assert found(read_corpus(write(texts, RAW["t_texts.txt"]))) == TWO


def test_raw_labels_by_number_name_or_separator(write):
    texts, names = write("x.txt", "one\ntwo\n"), write("names.txt", "ant\nbee\ncow bell\n")

    def read(labels, **values):
        path = write("y.txt", labels)
        return [
            set(row) for _, row in found(read_corpus(texts, labels_file=str(path), format="raw", **values))
        ]

    assert read("0 2\n\n", label_names=str(names)) == [{"ant", "cow bell"}, set()]
    assert read("0,2\n1\n", label_names=str(names)) == [{"ant", "cow bell"}, {"bee"}]
    assert read("ant, x\nbee\n") == [{"ant,", "x"}, {"bee"}]
    assert read("ant|cow bell\nbee\n", separator="|") == [{"ant", "cow bell"}, {"bee"}]


def test_a_blank_line_of_raw_text_is_an_empty_text(write):
    write("t_labels.txt", "a\nb\nc\n")
    path = write("t_texts.txt", "one\n\nthree\n")
    with pytest.raises(DataError, match=r"t_texts\.txt, line 2, field 'text': the text is empty"):
        read_corpus(path)
    assert found(read_corpus(path, empty_text="keep")) == [
        ("one", {"a": 1}),
        ("", {"b": 1}),
        ("three", {"c": 1}),
    ]
    assert found(read_corpus(path, on_error="skip")) == [("one", {"a": 1}), ("three", {"c": 1})]


def test_raw_lines_stay_in_step_when_some_are_left_out(write):
    write("t_labels.txt", b"a\n\xff\nc\nd\n")
    corpus = read_corpus(write("t_texts.txt", b"one\ntwo\n\xff\nfour\n"), on_error="skip")
    assert found(corpus) == [("one", {"a": 1}), ("four", {"d": 1})]
    assert [(left.reason, left.count, left.first) for left in corpus.left_out] == [
        ("line not UTF-8", 2, "t_labels.txt, line 2")
    ]


@pytest.mark.parametrize(
    ("texts", "labels", "message"),
    [
        (
            "a\nb\n",
            "x\n",
            "t_texts.txt and t_labels.txt have different numbers of lines: t_labels.txt ends after line 1",
        ),
        (
            "a\n",
            "x\ny\n",
            "t_texts.txt and t_labels.txt have different numbers of lines: t_texts.txt ends before it",
        ),
        ("a\n", "x x\n", "t_texts.txt, line 1, field 'labels': the label 'x' occurs twice"),
    ],
)
def test_raw_files_that_disagree(write, texts, labels, message):
    write("t_labels.txt", labels)
    with pytest.raises(DataError) as caught:
        read_corpus(write("t_texts.txt", texts))
    assert str(caught.value).startswith(message)
    assert "Remedy: " in str(caught.value)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ("a\n\nb\n", "names.txt, line 2: the name is empty. Remedy: write one label name a line, each once"),
        (
            "a\nb\na\n",
            "names.txt, line 3: the name 'a' occurs twice, here and in line 1. Remedy: write one label",
        ),
        (
            b"a\n\xff\n",
            "names.txt, line 2: byte 1 of the line (0xff) is not UTF-8. Remedy: save the file as UTF-8",
        ),
    ],
)
def test_a_file_of_label_names_is_checked(write, names, message):
    with pytest.raises(DataError) as caught:
        read_corpus(write("a.txt", "0\ta text\n"), label_names=str(write("names.txt", names)))
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize("number", ["3", "-1", "x", "1.0", "9" * 5000, "²"])
def test_a_label_number_out_of_range(write, number):
    names = write("names.txt", "a\nb\nc\n")
    path = write("a.txt", f"0\tone\n{number}\ttwo\n")
    with pytest.raises(DataError) as caught:
        read_corpus(path, format="text2text", label_names=str(names))
    assert str(caught.value).startswith(
        f"a.txt, line 2, field 'labels': {number!r:.40} is not the number of a label"
    )
    corpus = read_corpus(path, format="text2text", label_names=str(names), on_error="skip")
    assert (found(corpus), list(corpus.label_texts)) == ([("one", {"a": 1})], ["a", "b", "c"])


def test_text2text_takes_relevance_weights(write):
    corpus = read_corpus(write("a.txt", "1::0.5,0\tapple\n1\tpear\n"))
    assert corpus.labels.toarray().tolist() == [[1.0, 0.5], [0.0, 1.0]]
    with pytest.raises(DataError, match=r"weight 1 .* 'much'"):
        read_corpus(write("b.txt", "1::much\tapple\n"), format="text2text")


def test_text2text(write):
    corpus = read_corpus(write("a.txt", "1,0\tred\tapple\n\n\tgreen pear\n"), format="text2text")
    assert found(corpus) == [("red\tapple", {"0": 1, "1": 1}), ("green pear", {})]
    with pytest.raises(
        DataError, match=r"a\.txt, line 1: there is no tab. Remedy: write label numbers, a tab"
    ):
        read_corpus(write("a.txt", "1,0 text\n"), format="text2text")


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("__label__a __label__b some text", ("some text", {"a": 1, "b": 1})),
        ("__label__a\tsome  text", ("some  text", {"a": 1})),
        ("some __label__a text __label__b", ("some text", {"a": 1, "b": 1})),
        ("  some text  ", ("some text", {})),
        ("__label__a , it__label__s text", (", it__label__s text", {"a": 1})),
        ("__label__new\u00a0york text", ("text", {"new\u00a0york": 1})),
    ],
)
def test_fasttext_labels_are_words_with_the_mark(write, line, expected):
    assert found(read_corpus(write("a.ft", line + "\n"))) == [expected]


def test_fasttext_with_another_mark_and_without_a_name(write):
    assert found(read_corpus(write("a.ft", "#a.b text"), label_prefix="#")) == [("text", {"a.b": 1})]
    with pytest.raises(DataError, match=r"a\.ft, line 1, field 'labels': label 1 is empty"):
        read_corpus(write("a.ft", "__label__ text"))
    with pytest.raises(DataError, match=r"a\.ft, line 1, field 'text': the text is empty"):
        read_corpus(write("a.ft", "__label__a"))


def test_a_fasttext_line_of_many_labels_takes_no_quadratic_time(write):
    line = " ".join(f"__label__{i}" for i in range(200_000)) + " text"
    assert read_corpus(write("a.ft", line)).labels.nnz == 200_000


def test_jsonl_fields_can_be_named(write):
    path = write("a.jsonl", jsonl({"title": "a text", "tags": ["x"], "key": 7, "gain": [2.5]}))
    corpus = read_corpus(path, text="title", labels="tags", ids="key", weights="gain")
    assert documents(corpus) == [("a text", "7", {"x": 2.5})]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            "{",
            "a.jsonl, line 2: not JSON (Expecting property name enclosed in double quotes at character 2)",
        ),
        (
            '{"text": NaN}',
            "a.jsonl, line 2: not JSON (NaN is not allowed). Remedy: write one JSON object a line",
        ),
        ("[1]", "a.jsonl, line 2: a JSON array, not an object. Remedy: write one JSON object a line"),
        ("3", "a.jsonl, line 2: a JSON number, not an object"),
        ('"x"', "a.jsonl, line 2: a JSON string, not an object"),
        ("null", "a.jsonl, line 2: a JSON null, not an object"),
        ("[" * 100_000, "a.jsonl, line 2: not JSON (maximum recursion depth exceeded"),
        ('{"a":' * 100_000, "a.jsonl, line 2: not JSON (maximum recursion depth exceeded"),
        ('{"text": ' + "1" * 5000 + "}", "a.jsonl, line 2: not JSON (Exceeds the limit"),
        (
            '{"text": "a"}\r{"text": "b"}',
            "a.jsonl, line 2: not JSON (Extra data at character 15). Remedy: the line has a bare",
        ),
        (
            '{"labels": []}',
            "a.jsonl, line 2: there is no field 'text'; the fields are 'labels'. "
            "Remedy: name the right field (--text)",
        ),
        (
            '{"text": "a", "tags": []}',
            "a.jsonl, line 2: there is no field 'labels'; the fields are 'text', 'tags'. "
            "Remedy: name the right field (--labels), or write [] for none",
        ),
        ('{"text": "a", "labels": null}', "a.jsonl, line 2, field 'labels': the labels are null, not a list"),
        ('{"text": "\\ud800", "labels": []}', "a.jsonl, line 2, field 'text': the text holds U+D800"),
        (
            '{"text": "a", "labels": [], "weights": 1e999}',
            "a.jsonl, line 2, field 'weights': the weights are a number (inf)",
        ),
        ('{"text": "a", "labels": [], "id": {}}', "a.jsonl, line 2, field 'id': the id is an object"),
    ],
)
def test_a_bad_line_of_jsonl(write, line, message):
    good = json.dumps({"text": "good", "labels": ["x"]})
    path = write("a.jsonl", f"{good}\n{line}\n{good}\n")
    with pytest.raises(DataError) as caught:
        read_corpus(path)
    assert str(caught.value).startswith(message)
    assert "Remedy: " in str(caught.value)
    corpus = read_corpus(path, on_error="skip")
    assert found(corpus) == [("good", {"x": 1})] * 2
    assert message.startswith(corpus.left_out[0].first)


@pytest.mark.parametrize(
    "data", ['[{"text": "a", "labels": []}]', '[\n  {"text": "a", "labels": []}\n]', '{\n "text": "a"\n}']
)
def test_one_json_value_over_a_whole_file_is_recognised(write, data):
    with pytest.raises(DataError, match=r"jq -c '\.\[\]'"):
        read_corpus(write("a.json", data))


def test_a_message_does_not_repeat_huge_fields(write):
    with pytest.raises(DataError) as caught:
        read_corpus(write("a.jsonl", jsonl({"x" * 100_000: 1})))
    assert len(str(caught.value)) < 300


def test_csv_with_quotes_that_hold_everything(write):
    data = 'id,text,labels,weights\r\n7,"a ""b"", c\r\nd","x, y;z",2;0.5\r\n8,plain,,\r\n'
    corpus = read_corpus(write("a.csv", data))
    assert documents(corpus) == [('a "b", c\nd', "7", {"x, y": 2, "z": 0.5}), ("plain", "8", {})]


cell = st.text(st.characters(exclude_characters="\r\0", exclude_categories=["Cs"]), min_size=1).filter(
    str.strip
)


@given(st.lists(cell, min_size=1, max_size=6))
def test_csv_written_by_python_comes_back(tmp_path_factory, texts):
    import csv
    import io

    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerows([["text", "labels"], *([text, "x"] for text in texts)])
    path = tmp_path_factory.getbasetemp() / "round.csv"
    path.write_bytes(out.getvalue().encode())
    assert list(read_corpus(path).texts) == texts


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("", "a.csv: there is no header that can be read. Remedy: name the columns in the first line"),
        ("\n\n", "a.csv: there is no header that can be read"),
        (
            "text,tags\n",
            "a.csv, line 1: there is no column 'labels'; the columns are 'text', 'tags'. "
            "Remedy: name the right column",
        ),
        (
            "text,labels,text\na,b,c\n",
            "a.csv, line 1: the column 'text' is there twice. Remedy: rename one of the two",
        ),
        (
            "text,labels\na,b\na,b,c\n",
            "a.csv, line 3: 3 values for 2 columns. Remedy: quote values that hold the delimiter",
        ),
        ("text,labels\na,b\nc\n", "a.csv, line 3: 1 values for 2 columns"),
        (
            'text,labels\n"a\nb",x\n"c\n,d\n',
            "a.csv, line 4: not CSV (unexpected end of data). Remedy: close the quote that this row opens",
        ),
        (
            'text,labels\n"a" b,x\n',
            "a.csv, line 2: not CSV (',' expected after '\"'). Remedy: double the quotes inside",
        ),
        ("text,labels\na\rb,x\n", "a.csv, line 2: not CSV (new-line character seen in unquoted field"),
        ("text,labels\n,x\n", "a.csv, line 2, field 'text': the text is empty"),
        ("text,labels\na,x;x\n", "a.csv, line 2, field 'labels': the label 'x' occurs twice"),
        ("text,labels,weights\na,x,one\n", "a.csv, line 2, field 'weights': weight 1 is 'one'"),
        ("text,labels,weights\na,x,nan\n", "a.csv, line 2, field 'weights': weight 1 is NaN"),
        ("text,labels,weights\na,x;y,1\n", "a.csv, line 2, field 'weights': 1 weights for 2 labels"),
    ],
)
def test_a_bad_csv_file(write, data, message):
    with pytest.raises(DataError) as caught:
        read_corpus(write("a.csv", data))
    assert str(caught.value).startswith(message)
    assert "Remedy: " in str(caught.value)


def test_bare_carriage_returns_are_explained(write):
    with pytest.raises(DataError, match=r"bare carriage return: convert the line ends \(tr"):
        read_corpus(write("a.csv", "text,labels\ra,x\rb,y\r"))


def test_columns_that_are_not_read_may_be_there_twice(write):
    assert found(read_corpus(write("a.csv", "x,text,x,labels\n1,a,2,b\n"))) == [("a", {"b": 1})]


def test_csv_rows_with_unreadable_lines_are_left_out_whole(write):
    data = b'text,labels\nfirst,x\n"a\n\xff\nb",y\nlast,x\n'
    corpus = read_corpus(write("a.csv", data), on_error="skip")
    assert [text for text, _ in found(corpus)][:1] == ["first"]
    assert "a\nb" not in list(corpus.texts)
    assert corpus.left_out[0].first == "a.csv, line 4"


@pytest.mark.parametrize("name", ["a.csv", "a.svm"])
def test_a_header_that_cannot_be_read_is_never_skipped(write, name):
    data = {"a.csv": b"text,lab\xffels\ntext,labels\na,b\n", "a.svm": b"1 1 \xff\n1 1 1\n0 0:1\n"}[name]
    with pytest.raises(DataError, match="there is no header"):
        read_corpus(write(name, data), on_error="skip")


def test_csv_leaves_the_modules_own_limit_alone(write):
    import csv

    before = csv.field_size_limit()
    corpus = read_corpus(write("a.csv", "text,labels\n" + "a" * (before + 10) + ",x\n"))
    assert len(corpus.texts[0]) == before + 10
    assert csv.field_size_limit() == before


def test_a_line_too_long_is_left_out_or_refused(write):
    path = write("a.jsonl", jsonl({"text": "x" * 2000, "labels": []}, {"text": "short", "labels": []}))
    with pytest.raises(
        DataError, match=r"a\.jsonl, line 1: the line is longer than 1,000 bytes. Remedy: check"
    ):
        read_corpus(path, max_line_bytes=1000)
    corpus = read_corpus(path, max_line_bytes=1000, on_error="skip")
    assert (list(corpus.texts), corpus.left_out[0].reason) == (["short"], "line too long")


@pytest.mark.parametrize("name", FORMATS)
def test_texts_to_be_tagged_need_no_labels(write, name):
    data = {
        "a.jsonl": jsonl({"text": "a"}, {"text": "b", "labels": None}),
        "a.csv": b"text\na\nb\n",
        "a.tsv": b"text\tmore\na\t1\nb\t2\n",
        "a.ft": b"a\nb\n",
        "a.parquet": parquet(text=["a", "b"]),
    }[name]
    assert found(read_corpus(write(name, data), need_labels=False)) == [("a", {}), ("b", {})]


def test_plain_text_to_be_tagged(write):
    assert list(read_corpus(write("a.txt", "one\ntwo\n"), need_labels=False).texts) == ["one", "two"]


@pytest.mark.parametrize(
    "name", ["a.jsonl", "a.csv", "a.ft", "a.txt", "a.bin", "a.parquet", "a.npz", "a.svm"]
)
def test_an_empty_file_is_refused_by_name(write, name):
    with pytest.raises(DataError) as caught:
        read_corpus(write(name, b""))
    assert name in str(caught.value)


def test_a_file_of_which_all_is_left_out_says_why(write):
    with pytest.raises(DataError) as caught:
        read_corpus(write("a.jsonl", '{}\n{"text": "", "labels": []}\n[]\n{}\n'), on_error="skip")
    assert (
        "a.jsonl: all 4 documents were left out: text missing (2); text empty (1); not an object (1)"
        in str(caught.value)
    )


GUESSES = {
    b'{"text": "red apple", "labels": ["red", "fruit"]}\n{"text": "green pear", "labels": ["fruit"]}': 2,
    b"__label__a some text\n": 1,
    b"0,1\tsome text\n2\tmore text": 2,
    b"2 3 4\n0,1 0:1.5 2:3\n3 1:1\n": 2,
}


@pytest.mark.parametrize("name", ["a.txt", "a", "a.data", "a.gz"])
@pytest.mark.parametrize("data", GUESSES)
def test_formats_are_guessed_from_the_first_lines(write, name, data):
    assert read_corpus(write(name, packed(data, ".gz" if name == "a.gz" else ""))).n_docs == GUESSES[data]


@pytest.mark.parametrize(
    "data", [b"just some text\n", b"", b"\0\1\2" * 1000, bytes(range(256)) * 300, b"\n" * 500]
)
@pytest.mark.parametrize("name", ["a.txt", "a.bin", "a"])
def test_what_cannot_be_guessed_asks_for_the_format(write, name, data):
    with pytest.raises(DataError) as caught:
        read_corpus(write(name, data))
    assert (
        f"{name}: cannot tell what kind of file this is. Remedy: name it: format= (--format) one of jsonl, "
        in str(caught.value)
    )


def test_the_format_given_wins(write):
    assert read_corpus(write("a.csv", FORMATS["a.jsonl"]), format="jsonl").n_docs == 2
    assert (
        read_corpus(
            write("a.csv", npz([[1, 0]])), format="npz", labels_file=str(write("y", npz([[1]])))
        ).n_docs
        == 1
    )


def test_raw_text_needs_its_labels(write, tmp_path):
    with pytest.raises(
        DataError, match=r"a\.txt: there is no file of labels beside it. Remedy: name it: labels_file="
    ):
        read_corpus(write("a.txt", "one\n"), format="raw")
    with pytest.raises(DataError, match=r"none\.txt: there is no such file"):
        read_corpus(tmp_path / "none.txt", format="raw")
    with pytest.raises(DataError, match=r"y\.txt: there is no such file"):
        read_corpus(write("a.txt", "one\n"), labels_file=str(tmp_path / "y.txt"))


@pytest.mark.parametrize("path", ["", ".", "/", "nowhere/a.csv", "a\0.csv"])
@pytest.mark.parametrize(
    "kind", [None, "jsonl", "csv", "parquet", "raw", "svmlight", "npz", "text2text", "fasttext"]
)
def test_a_path_that_is_no_file(path, kind):
    with pytest.raises(DataError, match=r"folder|no such file"):
        read_corpus(path, format=kind)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"format": "xml"}, "format is 'xml'. Remedy: allowed: 'jsonl', 'csv'"),
        ({"max_line_bytes": 0}, "max_line_bytes is 0. Remedy: allowed: from 1 to 2^31 - 1"),
        ({"max_line_bytes": 10**30}, "max_line_bytes is 1000000"),
        ({"separator": ""}, "separator is ''. Remedy: allowed: at least one character"),
        ({"label_prefix": ""}, "label_prefix is ''. Remedy: allowed: at least one character"),
        ({"on_error": "ignore"}, "on_error is 'ignore'. Remedy: allowed: 'raise', 'skip'"),
        ({"seperator": ";"}, "there is no setting 'seperator'. Remedy: the settings are: format, text"),
    ],
)
def test_settings_out_of_range(values, message):
    with pytest.raises(SettingError) as caught:
        ReadSettings().with_values(values)
    assert str(caught.value).startswith(message)


def test_small_helpers():
    assert split_labels(" a ;; b c;", ";") == ["a", "b c"]
    assert listed([]) == "none"
    assert listed({str(i): 1 for i in range(10)}) == "'0', '1', '2', '3', '4', '5', '6', '7', ..."


@pytest.mark.parametrize(
    "name, content",
    [
        (
            "a.jsonl",
            '{"title": "Red", "body": "an apple", "tags": ["x"]}\n{"title": "Sky", "body": "", "tags": []}',
        ),
        ("a.csv", "title,body,tags\nRed,an apple,x\nSky,,\n"),
    ],
)
def test_a_text_may_have_several_fields(write, name, content):
    corpus = read_corpus(write(name, content), text="title+body", labels="tags")
    assert list(corpus.texts) == ["Red\nan apple", "Sky"]
    with pytest.raises(DataError, match=r"there is no (field|column) 'boby'"):
        read_corpus(write(name, content), text="title+boby", labels="tags")
    with pytest.raises(SettingError, match=r"names with . between them"):
        read_corpus(write(name, content), text="title+", labels="tags")


def test_several_fields_are_checked_like_one(write):
    path = write(
        "a.jsonl", '{"title": null, "body": "b", "labels": []}\n{"title": 3, "body": "b", "labels": []}'
    )
    with pytest.raises(DataError, match=r"line 2, field 'title\+body': the text is a number \(3\)"):
        read_corpus(path, text="title+body")
    corpus = read_corpus(path, text="title+body", on_error="skip")
    assert list(corpus.texts) == ["b"]


@pytest.mark.parametrize(
    "name, content",
    [
        ("a.jsonl", '{"text": "one", "labels": [2, 0]}\n{"text": "two", "labels": ["1"]}'),
        ("a.csv", "text,labels\none,2;0\ntwo,1\n"),
    ],
)
def test_numbers_of_labels_get_names(write, name, content):
    names = str(write("names.txt", "zero\none\ntwo\nthree\n"))
    corpus = read_corpus(write(name, content), label_names=names)
    assert [corpus.label_set(i) for i in range(2)] == [["zero", "two"], ["one"]]
    assert list(corpus.label_names) == ["zero", "one", "two", "three"]


def test_numbers_without_a_name_are_refused(write):
    names = str(write("names.txt", "zero\none\n"))
    lines = [
        f'{{"text": "a", "labels": {labels}}}' for labels in ("[0]", "[2]", "[-1]", "[true]", "[0.5]", "null")
    ]
    path = write("a.jsonl", "\n".join(lines))
    with pytest.raises(
        DataError, match=r"line 2, field 'labels': a number \(2\) is not the number of a label"
    ):
        read_corpus(path, label_names=names)
    corpus = read_corpus(path, label_names=names, on_error="skip")
    counts = {found.reason: found.count for found in corpus.left_out}
    assert (corpus.n_docs, counts) == (1, {"label number out of range": 4, "labels not a list": 1})
    with pytest.raises(DataError, match=r'write "0", or give a file of names'):
        read_corpus(path)


@pytest.mark.parametrize(
    "content, text",
    [("3,17\tred apple\n4\tsky\n", "red apple"), ("__label__a red apple\n__label__b sky\n", "red apple"),
     ("red apple\n3,17\tsky\n", "red apple"), ('{"red": "apple"}\nsky\n', '{"red": "apple"}')],
)  # fmt: skip
def test_labels_are_no_part_of_a_text_to_be_tagged(write, content, text):
    assert read_corpus(write("new.txt", content), need_labels=False).texts[0] == text
