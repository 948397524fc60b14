"""A tiny world with a known right answer: every label has its own words, texts mix them with common ones."""

import hashlib
import random
import tempfile
from functools import cache
from pathlib import Path

from xmcascade import Corpus

ODD_NAMES = [
    "new\nline",
    "tab\there",
    "quo\"te's",
    "emoji 😀 👩‍👧",
    "../../etc/passwd",
    "<script>alert(1)</script>",
    "x" * 5000,
    "nul\0nul",
    "שלום עולם",
    "-1",
    " edges ",
    "e\u0301",
    "é",  # the same letter as before, written otherwise: another label
]
COMMON = ["the", "and", "of", "in", "for", "with"]


def own_words(label):
    return [f"word{label}{letter}" for letter in "abcd"]


def text_of(label):
    """A text that can only be about this label (by its place in ODD_NAMES)."""
    return " ".join(["the", *own_words(label)])


def make_lists(n_docs=80, seed=0, names=ODD_NAMES):
    """Texts and label lists; the first documents have one label each, in order, so that none is missing."""
    rng = random.Random(seed)
    texts, labels = [], []
    for doc in range(n_docs):
        chosen = rng.sample(range(len(names)), rng.choice([1, 1, 2])) if doc >= len(names) else [doc]
        words = [word for label in chosen for word in rng.sample(own_words(label), 3)]
        words += rng.choices(COMMON, k=4)
        rng.shuffle(words)
        texts.append(" ".join(words))
        labels.append([names[label] for label in chosen])
    return texts, labels


def make_corpus(n_docs=80, seed=0):
    return Corpus.from_lists(*make_lists(n_docs, seed))


@cache
def tiny_encoder():
    """A folder with a small encoder of random weights that knows the words of this world."""
    from neural.tiny import save_tiny  # torch is slow to import

    kept = tempfile.TemporaryDirectory(prefix="tiny-encoder-")
    _folders.append(kept)  # until the end of the tests
    save_tiny(kept.name, texts=make_lists()[0], layers=1, width=32)
    return kept.name


_folders = []


def hashes(folder):
    """File name -> SHA-256, of all files below a folder."""
    files = sorted(path for path in Path(folder).rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
