"""Counting words in UTF-8 bytes without making a single Python string.

A block of documents is rewritten once as lower-case words with one space after each. In that form every
n-gram is a contiguous slice, so words, bigrams and longer n-grams share one hash, one table and one
comparison. Tables are open-addressing arrays of term ids; equal hashes are confirmed byte by byte, so counts
are exact.

Names: N documents of the block, W words, T distinct terms. A term is a word or an n-gram.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

__all__ = ["count_known", "count_new", "hash_terms", "insert_terms", "rehash", "words"]

FNV_START = np.uint64(14695981039346656037)
FNV_PRIME = np.uint64(1099511628211)
EMPTY = np.int32(-1)
# In a fold table: a character outside words, and one whose lower case depends on its neighbours.
OUTSIDE, UNDECIDED = -1, -2
# What `words` reports: done; a character beyond the fold table; an undecided one.
DECIDED, BEYOND, IN_CONTEXT = 0, 1, 2


@njit(nogil=True, cache=True, inline="always")
def _slot(h: Any, mask: Any) -> Any:
    # FNV's low bits alone are weak for short words; fold the high half in.
    return np.int64((h ^ (h >> np.uint64(29))) & np.uint64(mask))


@njit(nogil=True, cache=True)
def words(data: Any, offsets: Any, fold: Any, min_chars: int) -> Any:
    """Rewrite the documents data[offsets[i]:offsets[i+1]] as words, each followed by one space.

    fold[c] is the lower case of character c, or OUTSIDE where c does not belong to words. Returns the
    rewritten bytes, the words' starts [W] and ends [W] in them, the documents' word ranges [N+1], and
    DECIDED; or nothing and the reason, when a character is met that fold does not decide.
    """
    n_docs = len(offsets) - 1
    size = offsets[n_docs] - offsets[0]
    out = np.empty(size + size // 2 + n_docs + 8, np.uint8)  # lower case may take 3 bytes where upper took 2
    starts = np.empty((size + n_docs) // 2 + 1, np.int32)
    ends = np.empty((size + n_docs) // 2 + 1, np.int32)
    doc_words = np.zeros(n_docs + 1, np.int64)
    n_words = 0
    at = 0
    for doc in range(n_docs):
        begin = at
        chars = 0
        i = offsets[doc]
        stop = offsets[doc + 1]
        while i <= stop:
            c = np.int64(data[i]) if i < stop else np.int64(0x20)  # as if a space ended every document
            i += 1
            if c >= 0x80:  # the bytes are valid UTF-8, surrogates included: no checks here
                if c < 0xE0:
                    c = ((c & 0x1F) << 6) | (np.int64(data[i]) & 0x3F)
                    i += 1
                elif c < 0xF0:
                    c = (
                        ((c & 0x0F) << 12)
                        | ((np.int64(data[i]) & 0x3F) << 6)
                        | (np.int64(data[i + 1]) & 0x3F)
                    )
                    i += 2
                else:
                    c = ((c & 0x07) << 18) | ((np.int64(data[i]) & 0x3F) << 12)
                    c |= ((np.int64(data[i + 1]) & 0x3F) << 6) | (np.int64(data[i + 2]) & 0x3F)
                    i += 3
                if c >= len(fold):
                    return out[:0], starts[:0], ends[:0], doc_words, BEYOND
                if fold[c] == UNDECIDED:
                    return out[:0], starts[:0], ends[:0], doc_words, IN_CONTEXT
            c = np.int64(fold[c])
            if c != OUTSIDE:
                chars += 1
                if c < 0x80:
                    out[at] = c
                    at += 1
                elif c < 0x800:
                    out[at] = 0xC0 | (c >> 6)
                    out[at + 1] = 0x80 | (c & 0x3F)
                    at += 2
                elif c < 0x10000:
                    out[at] = 0xE0 | (c >> 12)
                    out[at + 1] = 0x80 | ((c >> 6) & 0x3F)
                    out[at + 2] = 0x80 | (c & 0x3F)
                    at += 3
                else:
                    out[at] = 0xF0 | (c >> 18)
                    out[at + 1] = 0x80 | ((c >> 12) & 0x3F)
                    out[at + 2] = 0x80 | ((c >> 6) & 0x3F)
                    out[at + 3] = 0x80 | (c & 0x3F)
                    at += 4
                continue
            if chars >= min_chars:
                starts[n_words] = begin
                ends[n_words] = at
                n_words += 1
                out[at] = 0x20
                at += 1
                begin = at
            else:
                at = begin  # too short to be a word: write over it
            chars = 0
        doc_words[doc + 1] = n_words
    return out[:at], starts[:n_words], ends[:n_words], doc_words, DECIDED


@njit(nogil=True, cache=True, inline="always")
def _same(a: Any, a_start: Any, b: Any, b_start: Any, length: Any) -> Any:
    for i in range(length):  # noqa: SIM110 - numba compiles a loop, not a generator in all()
        if a[a_start + i] != b[b_start + i]:
            return False
    return True


@njit(nogil=True, cache=True)
def rehash(hashes: Any, n_terms: int, n_slots: int) -> Any:
    """A table of n_slots (a power of two) for the first n_terms hashes."""
    slots = np.full(n_slots, EMPTY, np.int32)
    mask = n_slots - 1
    for term in range(n_terms):
        at = _slot(hashes[term], mask)
        while slots[at] != EMPTY:
            at = (at + 1) & mask
        slots[at] = term
    return slots


HASH, WHERE, LENGTH, TOTAL, DOCS, LAST_DOC, LAST_AT, WIDTH = 0, 1, 2, 3, 4, 5, 6, 8


@njit(nogil=True, cache=True)
def count_new(text: Any, starts: Any, ends: Any, doc_words: Any, n_min: int, n_max: int) -> Any:
    """Count the terms of each document, numbering terms as they come.

    Returns the distinct terms' bytes, offsets [T+1], hashes [T], document counts [T] and total counts [T],
    and the documents' counts as CSR: row ranges [N+1], term ids, counts.
    """
    n_docs = len(doc_words) - 1
    cap = 1 << 12
    mask = 2 * cap - 1
    slots = np.full(2 * cap, EMPTY, np.int32)
    # All that is known of a term lies in one cache line; LAST_DOC is 1 + the last document that had it,
    # LAST_AT where that document counts it.
    info = np.zeros((cap, WIDTH), np.int64)
    n_terms = 0
    rows = np.zeros(n_docs + 1, np.int64)
    ids = np.empty(len(starts) * (n_max - n_min + 1), np.int32)
    counts = np.empty(len(ids), np.int32)
    n = 0
    for doc in range(n_docs):
        last_word = doc_words[doc + 1]
        for first in range(doc_words[doc], last_word):
            h = FNV_START
            start = np.int64(starts[first])
            i = start
            for order in range(1, n_max + 1):
                word = first + order - 1
                if word >= last_word:
                    break
                end = np.int64(ends[word])
                while i < end:
                    h = (h ^ np.uint64(text[i])) * FNV_PRIME
                    i += 1
                if order >= n_min:
                    size = end - start
                    signed = np.int64(h)
                    at = _slot(h, mask)
                    term = np.int64(slots[at])
                    while term != EMPTY:
                        line = info[term]
                        if (
                            line[HASH] == signed
                            and line[LENGTH] == size
                            and _same(text, line[WHERE], text, start, size)
                        ):
                            break
                        at = (at + 1) & mask
                        term = np.int64(slots[at])
                    if term == EMPTY:
                        if n_terms == cap:
                            bigger = np.zeros((2 * cap, WIDTH), np.int64)
                            bigger[:cap] = info
                            info = bigger
                            cap *= 2
                            mask = 2 * cap - 1
                            slots = rehash(info[:, HASH].astype(np.uint64), n_terms, 2 * cap)
                            at = _slot(h, mask)
                            while slots[at] != EMPTY:
                                at = (at + 1) & mask
                        term = np.int64(n_terms)
                        slots[at] = term
                        info[term, HASH] = signed
                        info[term, WHERE] = start
                        info[term, LENGTH] = size
                        n_terms += 1
                    line = info[term]
                    line[TOTAL] += 1
                    if line[LAST_DOC] == doc + 1:
                        counts[line[LAST_AT]] += 1
                    else:
                        line[LAST_DOC] = doc + 1
                        line[LAST_AT] = n
                        line[DOCS] += 1
                        ids[n] = term
                        counts[n] = 1
                        n += 1
                h = (h ^ np.uint64(0x20)) * FNV_PRIME
                i = end + 1
        rows[doc + 1] = n
    info = info[:n_terms]
    offsets = np.zeros(n_terms + 1, np.int64)
    offsets[1:] = np.cumsum(info[:, LENGTH])
    data = np.empty(offsets[n_terms], np.uint8)
    for known in range(n_terms):
        where = info[known, WHERE]
        data[offsets[known] : offsets[known + 1]] = text[where : where + info[known, LENGTH]]
    hashes = info[:, HASH].astype(np.uint64)
    return (
        data,
        offsets,
        hashes,
        info[:, DOCS].copy(),
        info[:, TOTAL].copy(),
        rows,
        ids[:n].copy(),
        counts[:n].copy(),
    )


@njit(nogil=True, cache=True)
def hash_terms(data: Any, offsets: Any) -> Any:
    """The tables' hash of each term."""
    hashes = np.empty(len(offsets) - 1, np.uint64)
    for term in range(len(hashes)):
        h = FNV_START
        for i in range(offsets[term], offsets[term + 1]):
            h = (h ^ np.uint64(data[i])) * FNV_PRIME
        hashes[term] = h
    return hashes


@njit(nogil=True, cache=True)
def insert_terms(
    slots: Any,
    data: Any,
    offsets: Any,
    hashes: Any,
    n_terms: int,
    new_data: Any,
    new_offsets: Any,
    new_hashes: Any,
) -> Any:
    """Add terms to a table with room for them. Returns the new number of terms and each given term's id."""
    mask = len(slots) - 1
    ids = np.empty(len(new_hashes), np.int32)
    for new in range(len(new_hashes)):
        h = new_hashes[new]
        start = new_offsets[new]
        size = new_offsets[new + 1] - start
        at = _slot(h, mask)
        term = np.int64(slots[at])
        while term != EMPTY and not (
            hashes[term] == h
            and offsets[term + 1] - offsets[term] == size
            and _same(data, offsets[term], new_data, start, size)
        ):
            at = (at + 1) & mask
            term = np.int64(slots[at])
        if term == EMPTY:
            term = np.int64(n_terms)
            slots[at] = term
            hashes[term] = h
            base = offsets[term]
            for j in range(size):
                data[base + j] = new_data[start + j]
            offsets[term + 1] = base + size
            n_terms += 1
        ids[new] = term
    return n_terms, ids


@njit(nogil=True, cache=True)
def _murmur3(text: Any, start: Any, stop: Any) -> Any:
    """MurmurHash3 (32 bits, seed 0) of text[start:stop], as a signed number; public domain algorithm."""
    h = np.uint32(0)
    n = stop - start
    c1 = np.uint32(0xCC9E2D51)
    c2 = np.uint32(0x1B873593)
    for block in range(n // 4):
        i = start + 4 * block
        k = (
            np.uint32(text[i])
            | np.uint32(text[i + 1] << 8)
            | np.uint32(text[i + 2] << 16)
            | np.uint32(text[i + 3] << 24)
        )
        k = np.uint32(k * c1)
        k = np.uint32((k << np.uint32(15)) | (k >> np.uint32(17)))
        h = np.uint32(h ^ np.uint32(k * c2))
        h = np.uint32((h << np.uint32(13)) | (h >> np.uint32(19)))
        h = np.uint32(h * np.uint32(5) + np.uint32(0xE6546B64))
    k = np.uint32(0)
    tail = start + 4 * (n // 4)
    for j in range(n % 4):
        k = np.uint32(k | np.uint32(np.uint32(text[tail + j]) << np.uint32(8 * j)))
    if n % 4:
        k = np.uint32(k * c1)
        k = np.uint32((k << np.uint32(15)) | (k >> np.uint32(17)))
        h = np.uint32(h ^ np.uint32(k * c2))
    h = np.uint32(h ^ np.uint32(n))
    h = np.uint32((h ^ (h >> np.uint32(16))) * np.uint32(0x85EBCA6B))
    h = np.uint32((h ^ (h >> np.uint32(13))) * np.uint32(0xC2B2AE35))
    return np.int64(np.int32(h ^ (h >> np.uint32(16))))


@njit(nogil=True, cache=True)
def count_known(
    text: Any,
    starts: Any,
    ends: Any,
    doc_words: Any,
    n_min: int,
    n_max: int,
    slots: Any,
    data: Any,
    offsets: Any,
    hashes: Any,
    n_hashed: int,
) -> Any:
    """Count the terms of each document that are in the table; with n_hashed > 0, all terms, by MurmurHash.

    Returns CSR: row ranges [N+1], columns (ascending in a row), counts.
    """
    n_docs = len(doc_words) - 1
    mask = len(slots) - 1
    rows = np.zeros(n_docs + 1, np.int64)
    columns = np.empty(len(starts) * (n_max - n_min + 1), np.int32)
    counts = np.empty(len(columns), np.int32)
    n = 0
    for doc in range(n_docs):
        row = n
        last_word = doc_words[doc + 1]
        for first in range(doc_words[doc], last_word):
            h = FNV_START
            start = np.int64(starts[first])
            i = start
            for order in range(1, n_max + 1):
                word = first + order - 1
                if word >= last_word:
                    break
                end = np.int64(ends[word])
                while i < end:
                    h = (h ^ np.uint64(text[i])) * FNV_PRIME
                    i += 1
                if order >= n_min:
                    if n_hashed > 0:
                        columns[n] = abs(_murmur3(text, start, end)) % n_hashed
                        n += 1
                    else:
                        size = end - start
                        at = _slot(h, mask)
                        term = np.int64(slots[at])
                        while term != EMPTY and not (
                            hashes[term] == h
                            and offsets[term + 1] - offsets[term] == size
                            and _same(data, offsets[term], text, start, size)
                        ):
                            at = (at + 1) & mask
                            term = np.int64(slots[at])
                        if term != EMPTY:
                            columns[n] = term
                            n += 1
                h = (h ^ np.uint64(0x20)) * FNV_PRIME
                i = end + 1
        columns[row:n] = np.sort(columns[row:n])
        last = row - 1
        for j in range(row, n):
            if last >= row and columns[last] == columns[j]:
                counts[last] += 1
            else:
                last += 1
                columns[last] = columns[j]
                counts[last] = 1
        n = last + 1
        rows[doc + 1] = n
    return rows, columns[:n].copy(), counts[:n].copy()
