"""Corpora that come as numbers: svmlight with the XMC repository's header, and PECOS's pairs of npz files.

Such a corpus has features in place of texts; models that read words from text refuse it, the others use it.
"""

from __future__ import annotations

import re
import zipfile
from array import array
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import scipy.sparse as sp

from xmcascade.corpus.corpus import Corpus
from xmcascade.corpus.lines import open_bytes, place, read_whole, suffixes
from xmcascade.corpus.reading import ReadSettings, checked_lines, read_names
from xmcascade.errors import DataError
from xmcascade.store import Strings

__all__ = ["read_npz", "read_svmlight"]

HEADER = re.compile(r"(\d{1,12})\s+(\d{1,12})\s+(\d{1,12})\s*")
MAX_ID = 2**31 - 1
MAX_VALUE = 3.4e38  # of a 32-bit float
PLAUSIBLE_LABELS = 10_000_000  # a claim of more, and of 100 for every label in use, is a wrong header
MAX_RATIO = 100  # of unpacked to packed bytes

_Number = TypeVar("_Number", int, float)


def read_svmlight(path: Path, settings: ReadSettings) -> Corpus:
    """Lines of "label,label feature:value feature:value" below a header "documents features labels"."""
    builder = settings.builder(path.name)  # here only the judge of problems
    lines = checked_lines(path, settings, builder)
    header = next(lines, None)
    match = HEADER.fullmatch(header.text) if header is not None and header.number == 1 else None
    if match is None:
        remedy = 'write "documents features labels" as three numbers in the first line'
        raise DataError("there is no header", where=str(place(path, 1)), remedy=remedy)
    n_docs, n_features, n_labels = map(int, match.groups())
    columns, values, row_ends = array("i"), array("f"), array("q", [0])
    label_ids, label_ends = array("i"), array("q", [0])
    for line in lines:
        try:
            labels, features, weights = _parsed(line.text, min(n_features, MAX_ID), min(n_labels, MAX_ID))
        except ValueError as error:
            remedy = 'write "label,label feature:value feature:value", with numbers from 0'
            builder.problem("line not svmlight", str(error), builder.at(line.number), remedy)
            continue
        if not line.text.strip() and len(row_ends) - 1 + builder.n_problems >= n_docs:
            continue  # a blank line is a document without anything, but not at the end
        label_ids.extend(labels)
        label_ends.append(len(label_ids))
        columns.extend(features)
        values.extend(weights)
        row_ends.append(len(columns))
    found = len(row_ends) - 1 + builder.n_problems
    if found != n_docs:
        what = f"the header says {n_docs:,} documents, the file has {found:,}"
        raise DataError(what, where=str(place(path, 1)), remedy="correct the header, or fetch the file again")
    _check_features(path, n_features)
    _check_labels(path, n_labels, len(label_ids))
    shape = len(row_ends) - 1
    features = sp.csr_matrix((_np(values), _np(columns), _np(row_ends)), shape=(shape, n_features))
    marks = np.ones(len(label_ids), np.float32)
    labels = sp.csr_matrix((marks, _np(label_ids), _np(label_ends)), shape=(shape, n_labels))
    return _corpus(features, labels, path, settings, builder.build().left_out)


def _check_features(path: Path, claimed: int) -> None:
    if claimed > MAX_ID:
        what = f"it claims {claimed:,} features; {MAX_ID:,} are possible"
        raise DataError(what, where=path.name, remedy="correct the header or shape")


def _check_labels(path: Path, claimed: int, n_used: int) -> None:
    """Refuse a claim of so many labels that it must be a mistake, before it costs memory."""
    if claimed > min(MAX_ID, PLAUSIBLE_LABELS + 100 * n_used):
        what = f"it claims {claimed:,} labels, of which documents use {n_used:,} at most"
        raise DataError(what, where=path.name, remedy="correct the header or shape")


def _np(values: array[Any]) -> Any:
    return np.array(values, dtype={"i": np.int32, "f": np.float32, "q": np.int64}[values.typecode])


def _parsed(line: str, n_features: int, n_labels: int) -> tuple[list[int], list[int], list[float]]:
    first, _, rest = line.partition(" ")
    if ":" in first:  # no labels and no blank in their place
        first, rest = "", line
    pairs = [pair.partition(":") for pair in rest.split()]
    labels = [_number(part, int) for part in first.split(",") if part.strip()]
    features = [_number(pair[0], int) for pair in pairs]
    values = [_number(pair[2], float) for pair in pairs]
    for what, numbers, limit in (("label", labels, n_labels), ("feature", features, n_features)):
        if numbers and not 0 <= min(numbers) <= max(numbers) < limit:
            raise ValueError(f"a {what} number is outside the header's 0 to {limit - 1:,}")
        if len(set(numbers)) != len(numbers):
            raise ValueError(f"a {what} number occurs twice")
    if not all(-MAX_VALUE < value < MAX_VALUE for value in values):
        raise ValueError("a feature's value is not a finite number")
    return labels, features, values


def _number(part: str, kind: type[_Number]) -> _Number:
    try:
        if "_" not in part:  # Python reads 1_000 as a number
            return kind(part)
    except ValueError:
        pass
    raise ValueError(f"{part!r:.40} is not a number")


def read_npz(path: Path, settings: ReadSettings) -> Corpus:
    """PECOS's layout: features in X.….npz, labels in Y.….npz beside it (or `labels_file`)."""
    if path.name.startswith("Y.") and settings.labels_file is None:
        remedy = "name the X file; the Y file beside it is found"
        raise DataError("this is the file of labels", where=path.name, remedy=remedy)
    features = _loaded(path)
    usual = path.with_name("Y." + path.name.removeprefix("X."))
    beside = Path(settings.labels_file) if settings.labels_file else usual
    if beside.exists() or settings.need_labels:
        labels = _loaded(beside)
    else:
        labels = sp.csr_matrix((features.shape[0], 0), dtype=np.float32)
    if features.shape[0] != labels.shape[0]:
        what = f"{path.name} has {features.shape[0]:,} rows, {beside.name} has {labels.shape[0]:,}"
        raise DataError(what, remedy="give the two files of one split")
    if len(labels.data) and not (labels.data > 0).all():
        labels.eliminate_zeros()
        if not (labels.data > 0).all():
            raise DataError("a label's weight is below 0", where=beside.name, remedy="use weights above 0")
    _check_features(path, features.shape[1])
    _check_labels(beside, labels.shape[1], labels.nnz)
    return _corpus(features, labels, path, settings, ())


def _loaded(path: Path) -> Any:
    with open_bytes(path) as (stream, _):
        source = read_whole(path) if suffixes(path)[1] else stream
        try:
            _check_bomb(source)
            found = sp.load_npz(source)
            if found.dtype.kind not in "biuf":
                raise ValueError(f"its values are of type {found.dtype}")
            if max(found.shape) > PLAUSIBLE_LABELS + 100 * found.nnz and found.format != "csr":
                raise ValueError(f"{found.shape} with {found.nnz:,} values")
            with np.errstate(over="ignore"):
                matrix = sp.csr_matrix(found, dtype=np.float32)
            matrix.check_format(full_check=True)
            matrix.sum_duplicates()
        except OSError:
            raise
        except Exception as error:  # zip, header, shape and dtype faults come in a dozen types
            remedy = "make it with scipy.sparse.save_npz; the file is damaged or of another kind"
            raise DataError(f"not a sparse matrix ({error})"[:200], where=path.name, remedy=remedy) from error
    if not np.isfinite(matrix.data).all():
        raise DataError("a value is NaN or infinite", where=path.name, remedy="use 32-bit floats")
    return matrix


def _check_bomb(source: Any) -> None:
    """Refuse a small file that would unpack to a huge one; a real matrix does not shrink so much."""
    with zipfile.ZipFile(source) as members:
        packed = sum(member.compress_size for member in members.infolist())
        unpacked = sum(member.file_size for member in members.infolist())
    if unpacked > MAX_RATIO * packed + (64 << 20):
        raise ValueError(f"{packed:,} bytes would unpack to {unpacked:,}")
    source.seek(0)


def _corpus(features: Any, labels: Any, path: Path, settings: ReadSettings, left_out: Any) -> Corpus:
    import pyarrow as pa

    features.sort_indices()
    labels.sort_indices()
    names = read_names(settings.label_names)
    if names is not None and len(names) != labels.shape[1]:
        what = f"{len(names):,} label names for {labels.shape[1]:,} labels"
        raise DataError(what, where=path.name, remedy="give one name for each label")
    if names is None:
        label_names = Strings.from_arrow(pa.array(np.arange(labels.shape[1])).cast(pa.large_string()))
    else:
        label_names = Strings.of(names)
    return Corpus(labels=labels, label_names=label_names, features=features, left_out=left_out)
