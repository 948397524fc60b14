"""Word tf-idf: the numbers of scikit-learn's TfidfVectorizer, several times faster.

Texts never become Python strings: the kernels read packed UTF-8, block by block and on all cores. Columns are
in the order of their terms, so neither threads nor block size can change a matrix.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from xmcascade.errors import DataError, NotFittedError
from xmcascade.kernels import parallel, text
from xmcascade.kernels.rows import fill_rows, kept_per_row, weigh_rows
from xmcascade.progress import tracker
from xmcascade.settings import Settings
from xmcascade.store import Strings

__all__ = ["Tfidf", "TfidfSettings"]

BLOCK_BYTES = 4 << 20  # text per block: large enough to amortise a table, small enough for many blocks
MAX_TEXT_BYTES = 1 << 30  # of one document: places in a block are 32-bit numbers
IN_CONTEXT = "İΣ"  # their lower case is two characters, or depends on the neighbours


@dataclass(frozen=True, kw_only=True)
class TfidfSettings(Settings):
    """How texts become features; the names are scikit-learn's where it has one."""

    tokens: Literal["word", "whitespace"] = "word"
    """"word": runs of two or more letters, digits or underscores in any script; "whitespace": as split()."""
    lowercase: bool = True
    ngrams: tuple[int, int] = (1, 1)
    """Shortest and longest n-gram, in words."""
    min_df: int | float = 1
    """Terms in fewer documents are dropped: a count, or a share of the documents when below 1."""
    max_df: float = 1.0
    """Terms in more than this share of the documents are dropped."""
    max_features: int | None = None
    """Keep the terms that occur most often; ties go to the term first in order."""
    hashed: int = 0
    """Above 0: no vocabulary, terms are hashed to this many columns; for texts that never end."""
    sublinear: bool = True
    idf: bool = True
    l2: bool = True

    def check(self) -> None:
        """Refuse values out of range."""
        self.require(1 <= self.ngrams[0] <= self.ngrams[1] <= 8, "ngrams", "1 <= shortest <= longest <= 8")
        whole = self.min_df % 1 == 0 and 1 <= self.min_df < 2**63
        self.require(whole or 0 <= self.min_df < 1, "min_df", "a whole number from 1 up, or a share below 1")
        self.require(0 < self.max_df <= 1, "max_df", "above 0, at most 1")
        self.require(
            self.max_features is None or self.max_features >= 1, "max_features", "from 1 up, or null"
        )
        self.require(0 <= self.hashed < 2**31, "hashed", "0 or a number of columns below 2^31")


class _Counts(NamedTuple):
    """One block's counts (see kernels.text.count_new)."""

    data: npt.NDArray[np.uint8]
    offsets: npt.NDArray[np.int64]
    hashes: npt.NDArray[np.uint64]
    n_docs_with: npt.NDArray[np.int64]
    total: npt.NDArray[np.int64]
    rows: npt.NDArray[np.int64]
    ids: npt.NDArray[np.int32]
    counts: npt.NDArray[np.int32]


class Tfidf:
    """Fits a vocabulary and its idf, and turns texts into sparse rows.

    >>> matrix = Tfidf(sublinear=False).fit_transform(["the cat", "the dog"])
    >>> matrix.shape, matrix.toarray().round(2).tolist()
    ((2, 3), [[0.8100000023841858, 0.0, 0.5799999833106995], [0.0, 0.8100000023841858, 0.5799999833106995]])
    """

    def __init__(
        self, settings: TfidfSettings | None = None, *, threads: int | None = None, **values: Any
    ) -> None:
        self.settings = (settings or TfidfSettings()).with_values(values)
        self.threads = threads
        self.terms: Strings | None = None
        """The columns' terms, in order; empty when hashed."""
        self.idf: npt.NDArray[np.float64] = np.zeros(0)
        self._table: tuple[Any, ...] = ()

    @property
    def n_features(self) -> int:
        """Number of columns."""
        return self.settings.hashed or len(self._fitted_terms())

    def fit(self, texts: Strings | list[str]) -> Tfidf:
        """Learn the vocabulary and idf of these texts."""
        self.fit_transform(texts)
        return self

    def fit_transform(self, texts: Strings | list[str]) -> Any:
        """Learn the vocabulary and return the texts' matrix: CSR, float32, sorted."""
        texts = Strings.of(texts)
        if self.settings.hashed:
            self._set_vocabulary(Strings.of(()), np.zeros(0))
            matrix = self._known_counts(texts)
            n_docs_with = np.bincount(matrix.indices, minlength=matrix.shape[1])
        else:
            matrix, terms, n_docs_with = self._vocabulary(texts)
            self._set_vocabulary(terms, np.zeros(0))
        if self.settings.idf:
            self.idf = np.log((1 + len(texts)) / (1 + n_docs_with)) + 1
        return self._weighed(matrix)

    def transform(self, texts: Strings | list[str]) -> Any:
        """The texts' matrix: CSR, float32, sorted; terms not seen in fit are ignored.

        >>> Tfidf().fit(["one two"]).transform(["two three"]).toarray().tolist()
        [[0.0, 1.0]]
        """
        self._fitted_terms()
        return self._weighed(self._known_counts(Strings.of(texts)))

    def state(self) -> tuple[dict[str, Any], dict[str, Strings]]:
        """Arrays and strings to store; `restore` takes them back."""
        return {"idf": self.idf}, {"terms": self._fitted_terms()}

    @classmethod
    def restore(
        cls,
        settings: TfidfSettings,
        arrays: dict[str, Any],
        strings: dict[str, Strings],
        threads: int | None = None,
    ) -> Tfidf:
        """A fitted Tfidf from what `state` returned."""
        self = cls(settings, threads=threads)
        self._set_vocabulary(strings["terms"], np.asarray(arrays["idf"], np.float64))
        if self.idf.shape != ((self.n_features,) if settings.idf else (0,)):
            raise DataError(f"{self.idf.size:,} idf values for {self.n_features:,} features")
        return self

    def _fitted_terms(self) -> Strings:
        if self.terms is None:
            raise NotFittedError("this Tfidf has no vocabulary yet", remedy="call fit(texts) first")
        return self.terms

    def _set_vocabulary(self, terms: Strings, idf: npt.NDArray[np.float64]) -> None:
        self.terms, self.idf = terms, idf
        data = np.ascontiguousarray(terms.data[terms.offsets[0] : terms.offsets[-1]])
        offsets = terms.offsets - terms.offsets[0]
        hashes = text.hash_terms(data, offsets)
        self._table = (text.rehash(hashes, len(hashes), _slots_for(len(hashes))), data, offsets, hashes)

    def _blocks(self, texts: Strings) -> list[tuple[int, int]]:
        """Document ranges of about BLOCK_BYTES each."""
        size = texts.offsets - texts.offsets[0]
        cuts = np.searchsorted(size, np.arange(BLOCK_BYTES, size[-1], BLOCK_BYTES))
        bounds = np.unique(np.concatenate([[0], cuts, [len(texts)]])).tolist()
        return list(pairwise(bounds))

    def _words(self, texts: Strings) -> Any:
        """The words of these texts, as `kernels.text.words` returns them."""
        if texts.n_bytes > MAX_TEXT_BYTES:
            what = f"a document of {np.diff(texts.offsets).max():,} bytes is too long"
            raise DataError(what, remedy=f"cut it into parts below {MAX_TEXT_BYTES:,} bytes")
        tokens, lowercase = self.settings.tokens, self.settings.lowercase
        min_chars = 2 if tokens == "word" else 1
        for limit in (
            0x10000,
            0x110000,
        ):  # the large table is slow to make; only emoji and rare scripts need it
            fold = _fold(tokens, lowercase, limit)
            *found, undecided = text.words(texts.data, texts.offsets, fold, min_chars)
            if undecided != text.BEYOND:
                break
        if undecided == text.IN_CONTEXT:
            texts = Strings.of(string.lower() for string in texts)
            *found, _ = text.words(texts.data, texts.offsets, _fold(tokens, False, 0x110000), min_chars)
        return found

    def _known_counts(self, texts: Strings) -> Any:
        def count(block: tuple[int, int]) -> Any:
            n_min, n_max = self.settings.ngrams
            given = [
                *self._words(texts[block[0] : block[1]]),
                n_min,
                n_max,
                *self._table,
                self.settings.hashed,
            ]
            return text.count_known(*given)

        rows, columns, counts = [], [], []
        with tracker("tf-idf", len(texts)) as seen:
            for row, column, number in parallel.run(count, self._blocks(texts), self.threads):
                rows.append(np.diff(row))
                columns.append(column)
                counts.append(number)
                seen.advance(len(row) - 1)
        indptr = _indptr(rows)
        values = np.concatenate(counts or [np.zeros(0)]).astype(np.float32)
        indices = np.concatenate(columns or [np.zeros(0, np.int32)])
        return sp.csr_matrix((values, indices, indptr), shape=(len(texts), self.n_features))

    def _vocabulary(self, texts: Strings) -> tuple[Any, Strings, npt.NDArray[np.int64]]:
        """Counts as CSR over the kept terms in order, these terms, and in how many documents each occurs."""

        def count(block: tuple[int, int]) -> _Counts:
            given = [*self._words(texts[block[0] : block[1]]), *self.settings.ngrams]
            return _Counts(*text.count_new(*given))

        merged = _Vocabulary()
        counted = []  # for each block: its counts and the merged ids of its terms
        with tracker("tf-idf", len(texts)) as seen:
            for found in parallel.run(count, self._blocks(texts), self.threads):
                counted.append((found.rows, found.ids, found.counts, merged.add(found)))
                seen.advance(len(found.rows) - 1)
        kept, terms = self._selected(merged, len(texts))
        column_of = np.full(merged.n_terms, -1, np.int32)
        column_of[kept] = np.arange(len(kept), dtype=np.int32)

        sizes = [kept_per_row(rows, ids, column_of[of]) for rows, ids, _, of in counted]
        indptr = _indptr(sizes)
        columns = np.empty(indptr[-1], np.int32)
        values = np.empty(indptr[-1], np.float32)
        first = np.cumsum([0, *map(len, sizes)])

        def fill(i: int) -> None:
            rows, ids, counts, of = counted[i]
            starts = indptr[first[i] : first[i + 1] + 1]
            fill_rows(rows, ids, counts, column_of[of], starts, columns, values)

        for _ in parallel.run(fill, range(len(counted)), self.threads):
            pass
        matrix = sp.csr_matrix((values, columns, indptr), shape=(len(texts), len(kept)))
        return matrix, terms, merged.n_docs_with[kept]

    def _selected(self, merged: _Vocabulary, n_docs: int) -> tuple[npt.NDArray[np.int64], Strings]:
        """The ids of the kept terms in the order of the terms, and the terms."""
        s = self.settings
        low = s.min_df if s.min_df >= 1 else s.min_df * n_docs
        n_docs_with = merged.n_docs_with[: merged.n_terms]
        ids = np.flatnonzero((n_docs_with >= low) & (n_docs_with <= s.max_df * n_docs))
        strings = merged.strings().take(ids)
        spelled = list(strings.iter_bytes())
        order = np.array(sorted(range(len(spelled)), key=spelled.__getitem__), dtype=np.int64)
        if s.max_features is not None and len(order) > s.max_features:
            rarest_last = np.argsort(-merged.total[ids[order]], kind="stable")[: s.max_features]
            order = order[np.sort(rarest_last)]
        return ids[order], strings.take(order)

    def _weighed(self, matrix: Any) -> Any:
        def weigh(block: tuple[int, int]) -> None:
            starts, s = matrix.indptr[block[0] : block[1] + 1], self.settings
            weigh_rows(starts, matrix.indices, matrix.data, self.idf, s.sublinear, s.l2)

        for _ in parallel.run(weigh, parallel.blocks(matrix.shape[0], 4096), self.threads):
            pass
        matrix.has_sorted_indices = True
        return matrix


class _Vocabulary:
    """The terms of all blocks, each once; arrays with room to grow."""

    def __init__(self) -> None:
        self.n_terms = 0
        self.data = np.empty(1 << 16, np.uint8)
        self.offsets = np.zeros((1 << 12) + 1, np.int64)
        self.hashes = np.empty(1 << 12, np.uint64)
        self.n_docs_with = np.zeros(1 << 12, np.int64)
        self.total = np.zeros(1 << 12, np.int64)
        self.slots = text.rehash(self.hashes, 0, _slots_for(1 << 12))

    def add(self, found: _Counts) -> npt.NDArray[np.int32]:
        """Take a block's terms in; returns their ids here."""
        room = self.n_terms + len(found.hashes)
        self.data = _grown(self.data, int(self.offsets[self.n_terms]) + len(found.data))
        self.offsets = _grown(self.offsets, room + 1)
        self.hashes, self.n_docs_with = _grown(self.hashes, room), _grown(self.n_docs_with, room)
        self.total = _grown(self.total, room)
        if 2 * room > len(self.slots):
            self.slots = text.rehash(self.hashes, self.n_terms, _slots_for(room))
        table = self.slots, self.data, self.offsets, self.hashes, self.n_terms
        self.n_terms, ids = text.insert_terms(*table, found.data, found.offsets, found.hashes)
        self.n_docs_with[ids] += found.n_docs_with  # a block's terms are distinct, so no id occurs twice
        self.total[ids] += found.total
        return np.asarray(ids)

    def strings(self) -> Strings:
        return Strings(self.data, self.offsets[: self.n_terms + 1])


def _slots_for(n_terms: int) -> int:
    """At least two slots a term; a power of two."""
    return 1 << max(4, (2 * n_terms - 1).bit_length())


def _grown(values: Any, size: int) -> Any:
    if size <= len(values):
        return values
    bigger = np.zeros(max(size, len(values) * 3 // 2), values.dtype)
    bigger[: len(values)] = values
    return bigger


def _indptr(sizes: list[npt.NDArray[np.int64]]) -> npt.NDArray[np.int64]:
    lengths = np.concatenate(sizes or [np.zeros(0, np.int64)])
    return np.concatenate([[0], np.cumsum(lengths)])


@lru_cache(maxsize=8)
def _fold(tokens: str, lowercase: bool, limit: int) -> npt.NDArray[np.int32]:
    """For each character below the limit its lower case (see kernels.text.words)."""

    def fold(character: str) -> int:
        if not (character.isalnum() or character == "_" if tokens == "word" else not character.isspace()):
            return text.OUTSIDE
        if lowercase and character in IN_CONTEXT:
            return text.UNDECIDED  # only Python can tell
        return ord(character.lower() if lowercase else character)

    return np.array([fold(chr(c)) for c in range(limit)], dtype=np.int32)
