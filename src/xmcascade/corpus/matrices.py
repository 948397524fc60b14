"""Corpora that come as numbers: svmlight files with the XMC repository's header, and PECOS's pairs of npz files.

Such a corpus has features in place of texts; models that read words from text refuse it, the others use it as it is.
"""

from __future__ import annotations

import re
from array import array
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from xmcascade.corpus.corpus import Corpus
from xmcascade.corpus.lines import open_bytes, place
from xmcascade.corpus.reading import ReadSettings, checked_lines, read_names
from xmcascade.errors import DataError
from xmcascade.store import Strings

__all__ = ["read_npz", "read_svmlight"]

HEADER = re.compile(r"(\d{1,12})\s+(\d{1,12})\s+(\d{1,12})\s*")
MAX_ID = 2**31 - 1


def read_svmlight(path: Path, settings: ReadSettings) -> Corpus:
    """Lines of "label,label feature:value feature:value" below a header "documents features labels"."""
    builder = settings.builder()  # here only the judge of problems
    lines = checked_lines(path, settings, builder)
    header = next(lines, None)
    match = HEADER.fullmatch(header.text) if header else None
    if match is None:
        remedy = 'write "documents features labels" as three numbers in the first line'
        raise DataError("there is no header", where=str(place(path, 1)), remedy=remedy)
    n_docs, n_features, n_labels = map(int, match.groups())
    if max(n_features, n_labels) > MAX_ID:
        raise DataError("the header's numbers are too large", where=str(place(path, 1)), remedy="correct the header")
    columns, values, row_ends = array("i"), array("f"), array("q", [0])
    label_ids, label_ends = array("i"), array("q", [0])
    for line in lines:
        try:
            labels, features, weights = _parsed(line.text, n_features, n_labels)
        except ValueError as error:
            what, remedy = str(error), 'write "label,label feature:value ..."'
            builder.problem("line not svmlight", what, place(path, line.number), remedy)
            continue
        label_ids.extend(labels)
        label_ends.append(len(label_ids))
        columns.extend(features)
        values.extend(weights)
        row_ends.append(len(columns))
    left_out = builder.build().left_out
    found = len(row_ends) - 1 + sum(problem.count for problem in left_out)
    if found != n_docs:
        what = f"the header says {n_docs:,} documents, the file has {found:,}"
        raise DataError(what, where=str(place(path, 1)), remedy="correct the header, or fetch the file again")
    shape = len(row_ends) - 1
    features = sp.csr_matrix((_np(values), _np(columns), _np(row_ends)), shape=(shape, n_features))
    marks = np.ones(len(label_ids), np.float32)
    labels = sp.csr_matrix((marks, _np(label_ids), _np(label_ends)), shape=(shape, n_labels))
    return _corpus(features, labels, path, settings, left_out)


def _np(values: array[Any]) -> Any:
    return np.array(values, dtype={"i": np.int32, "f": np.float32, "q": np.int64}[values.typecode])


def _parsed(line: str, n_features: int, n_labels: int) -> tuple[list[int], list[int], list[float]]:
    first, _, rest = line.partition(" ")
    if ":" in first:  # no labels and no blank in their place
        first, rest = "", line
    labels = [int(part) for part in first.split(",") if part]
    pairs = [pair.split(":") for pair in rest.split()]
    features = [int(pair[0]) for pair in pairs]
    values = [float(pair[1]) if len(pair) == 2 else float("nan") for pair in pairs]
    for what, numbers, limit in (("label", labels, n_labels), ("feature", features, n_features)):
        if numbers and not 0 <= min(numbers) <= max(numbers) < limit:
            raise ValueError(f"a {what} number is outside the header's 0 to {limit - 1:,}")
        if len(set(numbers)) != len(numbers):
            raise ValueError(f"a {what} number occurs twice")
    if not np.isfinite(np.array(values, np.float32)).all():
        raise ValueError("a feature's value is not a finite number")
    return labels, features, values


def read_npz(path: Path, settings: ReadSettings) -> Corpus:
    """PECOS's layout: features in X.….npz, labels in Y.….npz beside it (or `labels_file`)."""
    if path.name.startswith("Y.") and settings.labels_file is None:
        remedy = "name the X file; the Y file beside it is found"
        raise DataError("this is the file of labels", where=path.name, remedy=remedy)
    beside = Path(settings.labels_file) if settings.labels_file else path.with_name("Y." + path.name.removeprefix("X."))
    features = _loaded(path)
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
    return _corpus(features, labels, path, settings, ())


def _loaded(path: Path) -> Any:
    with open_bytes(path) as (stream, _):
        try:
            matrix = sp.csr_matrix(sp.load_npz(stream), dtype=np.float32)
            matrix.check_format(full_check=True)
            matrix.sum_duplicates()
        except OSError:
            raise
        except Exception as error:  # zip, header, shape and dtype faults come in a dozen types
            remedy = "make it with scipy.sparse.save_npz; the file is damaged or of another kind"
            raise DataError(f"not a sparse matrix ({error})"[:200], where=path.name, remedy=remedy) from error
    if not np.isfinite(matrix.data).all():
        raise DataError("a value is NaN or infinite", where=path.name, remedy="use finite numbers")
    return matrix


def _corpus(features: Any, labels: Any, path: Path, settings: ReadSettings, left_out: Any) -> Corpus:
    features.sort_indices()
    labels.sort_indices()
    names = read_names(settings.label_names)
    if names is not None and len(names) != labels.shape[1]:
        what = f"{len(names):,} label names for {labels.shape[1]:,} labels"
        raise DataError(what, where=path.name, remedy="give one name for each label")
    label_names = Strings.of(names if names is not None else map(str, range(labels.shape[1])))
    return Corpus(labels=labels, label_names=label_names, features=features, left_out=left_out)
