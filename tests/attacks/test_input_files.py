"""Thousands of damaged and hostile files: each gives a Corpus or a named error, soon, in bounded memory."""

import gzip
import io
import json
import lzma
import random
import signal
import struct
import tracemalloc
import warnings
import zipfile
from contextlib import contextmanager

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reference.files import jsonl, npz, packed, parquet
from xmcascade.corpus import Corpus, read_corpus, write_corpus
from xmcascade.corpus.lines import COMPRESSED
from xmcascade.errors import XmcError

SECONDS = 5  # a case that takes longer hangs

RECORDS = [
    {"id": "a", "text": "red äpple", "labels": ["red", "fruit"], "weights": [0.5, 1]},
    {"id": 7, "text": 'green "pear", ripe', "labels": ["fruit"]},
    {"text": "line\nbreak 🦊", "labels": []},
]


def written(corpus):
    """Our own Parquet, with the labels in its metadata."""
    out = io.BytesIO()
    from xmcascade.corpus.tables import to_arrow

    pq.write_table(to_arrow(corpus), out, compression="none", write_page_checksum=False)
    return out.getvalue()


SEEDS = {
    "jsonl": jsonl(*RECORDS),
    "csv": b'id,text,labels,weights\na,"red\r\napple ""x""",red;fruit,0.5;1\nb,pear,fruit,\n"c",plum,,\n',
    "tsv": "text\tlabels\nred äpple\tred;fruit\ngreen pear\t\n".encode(),
    "fasttext": b"__label__red __label__fruit red apple\n__label__fruit green pear\nblue plum __label__x\n",
    "raw": b"red apple\ngreen pear\nblue plum\n",
    "text2text": b"0,2\tred apple\n1\tgreen pear\n\tblue plum\n",
    "svmlight": b"3 4 5\n0,2 0:1.5 3:2\n 1:1e-3\n4 2:-1\n",
    "npz": npz([[1, 0, 2], [0, 3, 0], [0, 0, 0]]),
    "parquet": written(
        Corpus.from_lists(["red äpple", "pear"], [["red", "fruit"], []], ids=["a", "b"], weights=[[1, 2], []])
    ),
}
TEXT_FORMATS = [kind for kind in SEEDS if kind not in ("npz", "parquet")]
# fmt: off
TOKENS = [
    b"\0", b"\r", b"\n", b"\r\n", b"\t", b'"', b"\\", b",", b";", b":", b" ", b"{", b"}", b"[", b"]",
    b"\xff", b"\xc3", b"\xef\xbb\xbf", b"\xff\xfe", b"\xed\xa0\x80", b"\\ud800", "²１\u2028".encode(),
    b"null", b"NaN", b"-Infinity", b"1e999", b"-1", b"1_0", b"9" * 30, b"9" * 5000, b"999999999999 ",
    b"__label__", b"[" * 2000,
]
# fmt: on


@contextmanager
def soon(what):
    def late(*_):
        pytest.fail(f"{what} took more than {SECONDS} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def check(corpus):
    """What is true of every corpus, wherever it came from."""
    assert corpus.n_docs > 0
    assert corpus.labels.shape == (corpus.n_docs, len(corpus.label_names))
    corpus.labels.check_format(full_check=True)
    assert corpus.labels.has_canonical_format
    assert np.isfinite(corpus.labels.data).all() and (corpus.labels.data > 0).all()
    assert len(set(corpus.label_names)) == corpus.n_labels or corpus.n_labels > 10**5
    for strings in (corpus.texts, corpus.ids, corpus.label_texts):
        for string in strings or ():
            string.encode()  # every character is one
    if corpus.features is not None:
        assert np.isfinite(corpus.features.data).all()
        corpus.features.check_format(full_check=True)


def attempt(path, data, **values):
    """Read the file both ways; True when it gave a corpus."""
    path.write_bytes(data)
    found = {}
    for on_error in ("raise", "skip"):
        with warnings.catch_warnings(), soon(f"{path.name} of {len(data)} bytes"):
            warnings.simplefilter("error")
            try:
                check(corpus := read_corpus(path, on_error=on_error, **values))
                found[on_error] = corpus
            except XmcError as error:
                message = str(error)
                assert "Remedy: " in message, message
                assert len(message) < 1500, message[:300]
                assert ".." not in error.where
    if "raise" in found:  # what has no fault is read alike both ways
        assert "skip" in found and not found["skip"].left_out
        assert found["raise"].n_docs == found["skip"].n_docs
    return "raise" in found


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    found = tmp_path_factory.mktemp("files")
    (found / "labels.txt").write_bytes(b"a b\nc\n\n")
    (found / "Y.npz").write_bytes(npz([[1, 0], [0, 1], [1, 1]]))
    return found


def options(folder, kind):
    more = {"raw": "labels.txt", "npz": "Y.npz"}
    return {"format": kind, **({"labels_file": str(folder / more[kind])} if kind in more else {})}


def mutated(data, rng):
    """One to four faults, each at a random place."""
    for _ in range(rng.randint(1, 4)):
        i, j = sorted(rng.randrange(len(data) + 1) for _ in range(2))
        fault = rng.randrange(9)
        if fault == 0 and data:  # a flipped bit
            at = rng.randrange(len(data))
            data = data[:at] + bytes([data[at] ^ (1 << rng.randrange(8))]) + data[at + 1 :]
        elif fault == 1:  # an end cut off, or a piece out of the middle
            data = data[:i] if rng.random() < 0.5 else data[:i] + data[j:]
        elif fault == 2:  # something put in between
            data = data[:i] + rng.choice(TOKENS) + data[i:]
        elif fault == 3:  # random bytes over a piece
            data = data[:i] + rng.randbytes(min(j - i, 20)) + data[j:]
        elif fault == 4:  # lines in another order
            lines = data.splitlines(keepends=True)
            rng.shuffle(lines)
            data = b"".join(lines)
        elif fault == 5:  # a piece again and again
            data = data[:i] + data[i:j] * rng.randint(2, 5) + data[j:]
        elif fault == 6:  # a number becomes another
            digits = [at for at, byte in enumerate(data) if 48 <= byte < 58]
            if digits:
                at = rng.choice(digits)
                data = data[:at] + rng.choice([b"-1", b"0", b"99", b"1e9", b"999999999999"]) + data[at + 1 :]
        elif fault == 7:  # a character replaced by one that means something
            data = data[:i] + rng.choice(TOKENS) + data[i + 1 :]
        else:  # line ends
            data = data.replace(b"\n", rng.choice([b"\r", b"\r\n", b"\n\n", b""]), rng.randint(1, 3))
    return data


# Long series of small mutations: hypothesis chooses the seed of each; a failure is one number to replay.
many = settings(max_examples=260, deadline=None, suppress_health_check=list(HealthCheck))


@pytest.mark.parametrize("kind", SEEDS)
def test_seeds_are_read_whole(folder, kind):
    assert attempt(folder / "file", SEEDS[kind], **options(folder, kind))


@pytest.mark.parametrize("kind", SEEDS)
@many
@given(st.integers(0, 2**64))
def test_mutated_files(folder, kind, seed):
    attempt(folder / "file", mutated(SEEDS[kind], random.Random(seed)), **options(folder, kind))


@pytest.mark.parametrize("kind", SEEDS)
@settings(many, max_examples=60)
@given(st.binary(max_size=400))
def test_random_bytes(folder, kind, data):
    attempt(folder / "file", data, **options(folder, kind))


@settings(many, max_examples=120)
@given(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=200),
    st.sampled_from(["a.txt", "a", "a.json", "a.csv", "a.svm"]),
)
def test_random_text_in_files_whose_format_is_guessed(folder, text, name):
    attempt(folder / name, text.encode())


@pytest.mark.parametrize("suffix", COMPRESSED)
@settings(many, max_examples=80)
@given(st.integers(0, 2**64), st.sampled_from(sorted(SEEDS)))
def test_mutated_compressed_files(folder, suffix, seed, kind):
    data = mutated(packed(SEEDS[kind] * 3, suffix), random.Random(seed))
    attempt(folder / f"file{suffix}", data, **options(folder, kind))


@pytest.mark.parametrize("suffix", COMPRESSED)
@pytest.mark.parametrize("kind", TEXT_FORMATS)
def test_a_compressed_file_cut_anywhere_is_an_error(folder, kind, suffix):
    data = packed(SEEDS[kind], suffix)
    for size in range(1, len(data) - 12, max(1, len(data) // 12)):
        assert not attempt(folder / f"file{suffix}", data[:size], **options(folder, kind)), size


json_value = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from(["\ud800", "a"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@settings(many, max_examples=200)
@given(
    st.lists(
        st.fixed_dictionaries({}, optional=dict.fromkeys(["text", "labels", "id", "weights"], json_value)),
        max_size=3,
    )
)
def test_json_objects_with_any_values(folder, records):
    attempt(folder / "a.jsonl", b"".join(json.dumps(record).encode() + b"\n" for record in records))


# fmt: off
arrow_types = st.sampled_from([
    pa.string(), pa.large_string(), pa.binary(), pa.int8(), pa.uint64(), pa.float32(), pa.bool_(), pa.null(),
    pa.date32(), pa.timestamp("us"), pa.duration("s"), pa.time32("s"), pa.decimal128(9, 2),
    pa.list_(pa.string()), pa.list_(pa.int32()), pa.large_list(pa.float64()), pa.list_(pa.list_(pa.string())),
    pa.struct([("a", pa.string())]), pa.map_(pa.string(), pa.string()), pa.dictionary(pa.int8(), pa.string()),
])
# fmt: on


@settings(many, max_examples=150)
@given(arrow_types, arrow_types, arrow_types, arrow_types, st.booleans())
def test_parquet_columns_of_any_type(folder, text, labels, ids, weights, nulls):
    columns = {"text": text, "labels": labels, "id": ids, "weights": weights}
    arrays = {}
    for name, kind in columns.items():
        for values in (
            [None, None] if nulls else ["a", "b"],
            [["x"], ["y"]],
            [1, 2],
            [[1.5], [2.5]],
            [None, None],
        ):
            try:
                arrays[name] = pa.array(values, kind)
                break
            except (pa.ArrowException, TypeError, ValueError, AttributeError):
                continue
    table = pa.table({name: array for name, array in arrays.items()})
    attempt(folder / "a.parquet", parquet(**{name: table[name] for name in table.column_names}))
    with warnings.catch_warnings(), soon("a table"):
        try:
            check(Corpus.from_table(table))
        except XmcError as error:
            assert "Remedy: " in str(error)


# One by one, what a person would think of.

ONE_BY_ONE = {
    "deep JSON": ("a.jsonl", b"[" * 1_000_000),
    "deep objects": ("a.jsonl", b'{"text":' * 200_000),
    "deep in a field": ("a.jsonl", b'{"text": "a", "labels": ' + b"[" * 900 + b"]" * 900 + b"}"),
    "a huge integer": ("a.jsonl", b'{"text": "a", "labels": [], "id": ' + b"9" * 100_000 + b"}"),
    "an integer of 4000 digits": ("a.jsonl", b'{"text": "a", "labels": [' + b"9" * 4000 + b'], "id": 1}'),
    "lone surrogates": ("a.jsonl", b'{"text": "\\udc00", "labels": ["\\ud800"]}'),
    "UTF-16": ("a.jsonl", jsonl(*RECORDS).decode().encode("utf-16")),
    "UTF-16 without a mark": ("a.jsonl", jsonl(*RECORDS).decode().encode("utf-16-le")),
    "UTF-32": ("a.csv", SEEDS["csv"].decode().encode("utf-32")),
    "Latin-1": ("a.csv", "text,labels\nété,x\n".encode("latin-1")),
    "CESU surrogates": ("a.tsv", b"text\tlabels\n\xed\xa0\xbd\xed\xb2\xa9\tx\n"),
    "bare returns": ("a.csv", SEEDS["csv"].replace(b"\n", b"\r")),
    "only NULs": ("a.csv", b"\0" * 100_000),
    "only quotes": ("a.csv", b'text,labels\n"' + b'""' * 100_000),
    "only line ends": ("a.jsonl", b"\n" * 300_000),
    "many values": ("a.csv", b"text,labels\na,b" + b"," * 1_000_000),
    "a header of documents": ("a.svm", b"999999999999 1 1\n0 0:1\n"),
    "a header of features": ("a.svm", b"1 999999999999 1\n0 0:1\n"),
    "a header of labels": ("a.svm", b"1 1 2147483647\n0 0:1\n"),
    "a header of long numbers": ("a.svm", b"9" * 100_000 + b" 1 1\n0 0:1\n"),
    "one long svmlight line": ("a.svm", b"1 1 1\n" + b"0," * 200_000 + b" 0:1"),
    "many blanks": ("a.txt", b"1 " + b" " * 60_000 + b"x\n" + b"1:1 " + b" " * 60_000 + b"x\n"),
    "many commas": ("a.txt", b"1," * 30_000 + b"\n" + b"1," * 30_000 + b"\n"),
    "many marks": ("a.ft", b"__label__a " * 100_000),
    "marks without blanks": ("a.ft", b"__label__" * 200_000),
    "gzip called jsonl": ("a.jsonl", gzip.compress(SEEDS["jsonl"])),
    "jsonl called gzip": ("a.jsonl.gz", SEEDS["jsonl"]),
    "gzip in gzip": ("a.jsonl.gz", gzip.compress(gzip.compress(SEEDS["jsonl"]))),
    "a zip called npz": ("a.npz", b"PK\x05\x06" + b"\0" * 18),
    "Parquet magic only": ("a.parquet", b"PAR1" + struct.pack("<I", 2**31) + b"PAR1"),
}


@pytest.mark.parametrize("name", ONE_BY_ONE)
def test_hostile_files_are_refused(folder, name):
    file, data = ONE_BY_ONE[name]
    assert not attempt(folder / file, data)


def peak_of(path, **values):
    tracemalloc.start()
    try:
        with soon(path.name):
            read_corpus(path, **values)
    except XmcError as error:
        return tracemalloc.get_traced_memory()[1], str(error)
    else:
        return tracemalloc.get_traced_memory()[1], ""
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("kind", TEXT_FORMATS)
@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_a_50_mb_line_costs_no_50_mb(folder, kind, suffix):
    path = folder / f"long{suffix}"
    with gzip.open(path, "wb", compresslevel=1) if suffix else path.open("wb") as out:
        out.write(SEEDS[kind].rstrip(b"\n"))
        for _ in range(50):
            out.write(b"x" * (1 << 20))
    peak, message = peak_of(path, **options(folder, kind), max_line_bytes=1 << 20)
    assert "longer than 1,048,576 bytes" in message
    assert peak < 12 << 20


@pytest.mark.parametrize("suffix", COMPRESSED)
def test_a_bomb_of_one_line_costs_no_more_than_a_line(folder, suffix):
    path = folder / f"bomb.jsonl{suffix}"
    block = b"x" * (1 << 20)
    if suffix == ".zst":
        path.write_bytes(packed(block * 100, suffix))
    else:
        with gzip.open(path, "wb", 1) if suffix == ".gz" else lzma.open(path, "wb", preset=0) as out:
            for _ in range(100):
                out.write(block)
    assert path.stat().st_size < 1 << 20
    peak, message = peak_of(path, max_line_bytes=1 << 20)
    assert "longer than" in message
    assert peak < 16 << 20


def test_a_zip_bomb_of_zeros_is_not_unpacked(folder):
    out = io.BytesIO()
    names = {
        "format": np.array(b"csr"),
        "shape": np.array([1, 1]),
        "indices": np.array([0]),
        "indptr": np.array([0, 1]),
    }
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as members:
        for name, array in names.items():
            with members.open(f"{name}.npy", "w") as member:
                np.lib.format.write_array(member, array)
        with members.open("data.npy", "w", force_zip64=True) as member:
            np.lib.format.write_array_header_1_0(
                member, {"descr": "<f8", "fortran_order": False, "shape": (25_000_000,)}
            )
            for _ in range(200):
                member.write(bytes(1_000_000))
    path = folder / "bomb.npz"
    path.write_bytes(out.getvalue())
    assert path.stat().st_size < 1 << 20
    peak, message = peak_of(path, labels_file=str(folder / "Y.npz"))
    assert "would unpack to 200," in message
    assert peak < 16 << 20


def test_a_bomb_in_a_compressed_parquet_file_stops_at_the_limit(folder, monkeypatch):
    monkeypatch.setattr("xmcascade.corpus.lines.MAX_WHOLE_BYTES", 1 << 20)
    path = folder / "bomb.parquet.gz"
    with gzip.open(path, "wb", 1) as out:
        for _ in range(50):
            out.write(bytes(1 << 20))
    peak, message = peak_of(path)
    assert "unpacks to more than 1,048,576 bytes. Remedy: unpack it first" in message
    assert peak < 8 << 20


def test_what_was_read_from_damaged_files_can_be_written_and_read_again(folder):
    again = folder / "again.jsonl"
    n_read = 0
    for seed in range(60):
        (folder / "a.jsonl").write_bytes(mutated(SEEDS["jsonl"], random.Random(seed)))
        try:
            corpus = read_corpus(folder / "a.jsonl", on_error="skip")
        except XmcError:
            continue
        write_corpus(corpus, again)
        assert read_corpus(again).texts == corpus.texts
        n_read += 1
    assert n_read > 20
