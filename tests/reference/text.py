"""Slow, obvious twins of kernels.text: Python strings, regular expressions and Counters."""

import re
from collections import Counter

WORD = {"word": re.compile(r"\w\w+"), "whitespace": re.compile(r"\S+")}


def words(text, tokens="word", lowercase=True):
    return WORD[tokens].findall(text.lower() if lowercase else text)


def terms(text, n_min=1, n_max=1, **options):
    """Words and n-grams, by place and then by length."""
    found = words(text, **options)
    return [
        " ".join(found[at : at + n])
        for at in range(len(found))
        for n in range(n_min, n_max + 1)
        if at + n <= len(found)
    ]


def counts(texts, n_min=1, n_max=1, **options):
    return [Counter(terms(text, n_min, n_max, **options)) for text in texts]


def murmur3(raw, seed=0):
    """MurmurHash3, 32 bits, signed; after the reference implementation by Austin Appleby."""

    def rotated(x, by):
        return ((x << by) | (x >> (32 - by))) & 0xFFFFFFFF

    def mixed(k):
        return rotated(k * 0xCC9E2D51 & 0xFFFFFFFF, 15) * 0x1B873593 & 0xFFFFFFFF

    h = seed
    whole = len(raw) // 4 * 4
    for at in range(0, whole, 4):
        h = rotated(h ^ mixed(int.from_bytes(raw[at : at + 4], "little")), 13) * 5 + 0xE6546B64 & 0xFFFFFFFF
    if raw[whole:]:
        h ^= mixed(int.from_bytes(raw[whole:], "little"))
    h ^= len(raw)
    h = (h ^ h >> 16) * 0x85EBCA6B & 0xFFFFFFFF
    h = (h ^ h >> 13) * 0xC2B2AE35 & 0xFFFFFFFF
    h ^= h >> 16
    return h - (1 << 32) if h >= 1 << 31 else h
