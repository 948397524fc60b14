"""A synthetic corpus of any size, from a seed: no loop over documents or labels, texts made as bytes.

A world (label frequencies, topics, words) follows from the seed and the sizes alone; documents are drawn from
it in blocks of fixed size, each with its own random stream. So more documents begin with the same documents,
and another `part` holds other documents of the same world.

Label frequencies fall by Zipf-Mandelbrot. Labels live in topics of about 64. A text mixes words of its
labels, words of their topics and common words, and a few of its labels are missing or wrong, as in life.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from xmcascade.corpus.corpus import Corpus
from xmcascade.errors import SettingError
from xmcascade.progress import tracker
from xmcascade.store import Strings

__all__ = ["make_synthetic"]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bytes = npt.NDArray[np.uint8]

BLOCK = 8192  # documents drawn together; part of what a seed means
TOPIC_LABELS = 64
ZIPF_POWER, ZIPF_SHIFT = 0.9, 3.0
SAME_TOPIC = 0.7  # chance that a further label comes from the first one's topic
REPEATS = 1.3  # further labels are drawn this much more often, since some repeat and count once
LABEL_WORDS, TOPIC_WORDS = 5, 40
SYLLABLES = np.frombuffer("".join(c + v for c in "bdfgjklmnprstvwzchxy" for v in "aeiou").encode(), np.uint8)
SYLLABLES = SYLLABLES.reshape(100, 2)


def make_synthetic(
    n_docs: int,
    n_labels: int,
    *,
    seed: int = 0,
    part: int = 0,
    n_topics: int | None = None,
    labels_per_doc: float = 3.0,
    words_per_doc: float = 25,
    vocabulary: int | None = None,
    label_share: float = 0.2,
    topic_share: float = 0.2,
    missing: float = 0.08,
    spurious: float = 0.02,
) -> Corpus:
    """Draw documents; all labels keep their names, with or without documents.

    Everything but `n_docs` and `part` makes the world: keep it and change `part` to get a test set. Of a
    text's words, `label_share` belong to its labels and `topic_share` to their topics. `labels_per_doc` is
    met to within a tenth or so, since repeats count once. `missing` and `spurious` are the shares of labels
    left out and of wrong ones added. Label names read "topic/label"; unless the vocabulary is small, the
    second half is also the label's most frequent own word.

    >>> train = make_synthetic(100, 10, words_per_doc=6)
    >>> train.n_docs, train.n_labels, train.label_names[0], train.texts[0]
    (100, 10, 'huvu/gilo', 'ciru himu sisa ra da bo huvu rigi')
    """
    world = _World(
        n_labels=_whole("n_labels", n_labels, 1),
        seed=_whole("seed", seed, 0),
        n_topics=_topics(n_topics, n_labels),
        # Room for a word of its own for every label, after the common ones.
        vocabulary=_whole("vocabulary", 5000 + 2 * n_labels if vocabulary is None else vocabulary, 4),
        labels_per_doc=_between("labels_per_doc", labels_per_doc, 1, 1000),
        words_per_doc=_between("words_per_doc", words_per_doc, 1, 1_000_000),
        label_share=_between("label_share", label_share, 0, 1),
        topic_share=_between("topic_share", topic_share, 0, 1 - label_share + 1e-9),
        missing=_between("missing", missing, 0, 1),
        spurious=_between("spurious", spurious, 0, 1),
    )
    n_docs, part = _whole("n_docs", n_docs, 1), _whole("part", part, 0)
    blocks = []
    with tracker("drawing documents", n_docs) as shown:
        for start in range(0, n_docs, BLOCK):
            n = min(BLOCK, n_docs - start)
            blocks.append(world.draw(start // BLOCK, part, n))
            shown.advance(n)
    indices = np.concatenate([block.labels for block in blocks])
    indptr = _starts(np.concatenate([block.n_labels for block in blocks]))
    values = np.ones(len(indices), np.float32)
    return Corpus(
        labels=sp.csr_matrix((values, indices, indptr), shape=(n_docs, n_labels)),
        label_names=world.label_names(),
        texts=Strings(
            np.concatenate([block.text for block in blocks]),
            _starts(np.concatenate([block.n_bytes for block in blocks])),
        ),
    )


@dataclass(frozen=True)
class _Block:
    """Consecutive documents, flat: labels and text bytes in a row, and how many each document has."""

    labels: npt.NDArray[np.int32]
    n_labels: Ints
    text: Bytes
    n_bytes: Ints


@dataclass(frozen=True)
class _World:
    n_labels: int
    seed: int
    n_topics: int
    vocabulary: int
    labels_per_doc: float
    words_per_doc: float
    label_share: float
    topic_share: float
    missing: float
    spurious: float

    # Label ids say nothing about frequency or topic, as in real corpora. Places are labels in topic order.

    @cached_property
    def label_at(self) -> Ints:
        """Place -> label id."""
        return np.argsort(np.random.default_rng([self.seed, 1]).random(self.n_labels), kind="stable")

    @cached_property
    def mass_before(self) -> Floats:
        """Probability of all places before a place, and 1 at the end."""
        ranks = np.argsort(np.random.default_rng([self.seed, 2]).random(self.n_labels), kind="stable")
        weights = (ranks + ZIPF_SHIFT) ** -ZIPF_POWER
        mass = np.zeros(self.n_labels + 1)
        np.cumsum(weights / weights.sum(), out=mass[1:])
        return mass

    @cached_property
    def words(self) -> tuple[Bytes, Ints]:
        """Word -> its bytes (padded with spaces), and its length."""
        return _spell(np.arange(self.vocabulary))

    @property
    def n_common(self) -> int:
        """The first words of the vocabulary; they belong to no label or topic."""
        return min(1000, self.vocabulary // 4)

    def topic_of(self, places: Ints) -> Ints:
        return places * self.n_topics // self.n_labels

    def topic_start(self, topics: Ints) -> Ints:
        return -(-topics * self.n_labels // self.n_topics)

    def draw(self, number: int, part: int, n: int) -> _Block:
        """The first n documents of a block; always draws all, so that n changes none of them."""
        rng = np.random.default_rng([self.seed, 3, part, number])
        docs, places = self._draw_labels(rng)
        n_true = np.bincount(docs, minlength=BLOCK)
        words_docs, words = self._draw_words(rng, places, n_true)
        docs, labels = self._observe(rng, docs, places)
        words, words_docs = words[words_docs < n], words_docs[words_docs < n]
        text, n_bytes = self._write(words, words_docs, n)
        return _Block(
            labels[docs < n].astype(np.int32), np.bincount(docs, minlength=BLOCK)[:n], text, n_bytes
        )

    def _draw_labels(self, rng: np.random.Generator) -> tuple[Ints, Ints]:
        """(document, place) pairs, each once, in the order of the documents."""
        n_slots = 1 + _poisson(rng.random(BLOCK), REPEATS * (self.labels_per_doc - 1))
        docs = np.repeat(np.arange(BLOCK), n_slots)
        first = self._places(rng.random(BLOCK))
        topics = self.topic_of(first)
        low = self.mass_before[self.topic_start(topics)][docs]
        high = self.mass_before[self.topic_start(topics + 1)][docs]
        near = rng.random(len(docs)) < SAME_TOPIC
        u = rng.random(len(docs))
        places = self._places(np.where(near, low + u * (high - low), u))
        places[_starts(n_slots)[:-1]] = first
        return self._distinct(docs, places)

    def _places(self, u: Floats) -> Ints:
        """The place at which this much probability lies before."""
        found = np.searchsorted(self.mass_before, u, side="right") - 1
        return np.minimum(found, self.n_labels - 1)

    def _distinct(self, docs: Ints, values: Ints) -> tuple[Ints, Ints]:
        return np.divmod(np.unique(docs * self.n_labels + values), self.n_labels)

    def _observe(self, rng: np.random.Generator, docs: Ints, places: Ints) -> tuple[Ints, Ints]:
        """The labels as somebody noted them: some forgotten (never all of a document's), a few wrong."""
        kept = rng.random(len(docs)) >= self.missing
        kept |= (np.bincount(docs[kept], minlength=BLOCK) == 0)[docs]
        wrong = rng.random(len(docs)) < self.spurious
        noise = self._places(rng.random(len(docs)))
        places = np.concatenate([places[kept], noise[wrong]])
        return self._distinct(np.concatenate([docs[kept], docs[wrong]]), self.label_at[places])

    def _draw_words(self, rng: np.random.Generator, places: Ints, n_true: Ints) -> tuple[Ints, Ints]:
        """(document, word) in text order."""
        n_words = np.maximum(1, _poisson(rng.random(BLOCK), self.words_per_doc))
        docs = np.repeat(np.arange(BLOCK), n_words)
        kind, slot, which = rng.random(len(docs)), rng.random(len(docs)), rng.random(len(docs))
        words = (self.vocabulary**which).astype(np.int64) - 1  # Zipf: log-uniform ranks
        place = places[_starts(n_true)[docs] + (slot * n_true[docs]).astype(np.int64)]
        of_label = kind < self.label_share
        # The square prefers a label's first words.
        nth = (which[of_label] ** 2 * LABEL_WORDS).astype(np.int64)
        words[of_label] = self._label_word(self.label_at[place[of_label]], nth)
        of_topic = ~of_label & (kind < self.label_share + self.topic_share)
        nth = (which[of_topic] ** 2 * TOPIC_WORDS).astype(np.int64)
        words[of_topic] = self._topic_word(self.topic_of(place[of_topic]), nth)
        return docs, words

    def _label_word(self, labels: Ints, nth: Ints) -> Ints:
        own = self.n_common + labels
        hashed = self._hashed_word(labels * LABEL_WORDS + nth, 1)
        return np.where((nth == 0) & (own < self.vocabulary), own, hashed)

    def _topic_word(self, topics: Ints, nth: Ints) -> Ints:
        return self._hashed_word(topics * TOPIC_WORDS + nth, 2)

    def _hashed_word(self, keys: Ints, salt: int) -> Ints:
        """Any word but the common ones, by a hash: no table of labels x words is kept."""
        mixed = _mix(keys.astype(np.uint64) + _mix(np.array([self.seed * 4 + salt], dtype=np.uint64)))
        return self.n_common + (mixed % np.uint64(self.vocabulary - self.n_common)).astype(np.int64)

    def _write(self, words: Ints, docs: Ints, n: int) -> tuple[Bytes, Ints]:
        """Words joined by spaces, as bytes."""
        letters, lengths = self.words
        taken = lengths[words] + 1  # with the space after it
        taken[_starts(np.bincount(docs, minlength=n))[1:] - 1] -= 1  # except at the end of a text
        text = letters[words][np.arange(letters.shape[1]) < taken[:, None]]
        return text, np.bincount(docs, weights=taken, minlength=n).astype(np.int64)

    def label_names(self) -> Strings:
        """ "topic/label" for each label; the label's word is unique."""
        topics = np.empty(self.n_labels, np.int64)
        topics[self.label_at] = self.topic_of(np.arange(self.n_labels))
        first, first_length = _spell(self._topic_word(topics, np.zeros_like(topics)))
        second, second_length = _spell(self.n_common + np.arange(self.n_labels))
        first[np.arange(self.n_labels), first_length] = ord("/")
        both = np.concatenate([first, second], axis=1)
        used = np.concatenate(
            [
                np.arange(first.shape[1]) <= first_length[:, None],
                np.arange(second.shape[1]) < second_length[:, None],
            ],
            axis=1,
        )
        return Strings(both[used], _starts(first_length + 1 + second_length))


def _spell(words: Ints) -> tuple[Bytes, Ints]:
    """A pronounceable word for each number, all different: 100 of one syllable, 10,000 of two, and so on."""
    left, n_syllables, size = words.copy(), np.ones_like(words), 100
    while (longer := (left >= size) & (n_syllables == _digits(size))).any():
        left[longer] -= size
        n_syllables[longer] += 1
        size *= 100
    # Neighbours should not look alike: 37...7 has no factor in common with 100, so this permutes each length.
    sizes = 100**n_syllables
    left = (left * 37_037_037 + 17) % sizes
    width = int(n_syllables.max())
    letters = np.full((len(words), 2 * width + 1), ord(" "), np.uint8)
    for i in range(width):
        has = n_syllables > i
        letters[has, 2 * i : 2 * i + 2] = SYLLABLES[left[has] % 100]
        left //= 100
    return letters, 2 * n_syllables


def _digits(size: int) -> int:
    return (len(str(size)) - 1) // 2


def _mix(x: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """splitmix64: neighbouring numbers become unrelated ones."""
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def _poisson(u: Floats, mean: float) -> Ints:
    """Poisson counts from uniform numbers; a table, so that the random stream has a fixed length."""
    most = int(mean + 12 * mean**0.5 + 20)
    k = np.arange(most + 1)
    logs = k * np.log(max(mean, 1e-300)) - mean - np.concatenate([[0.0], np.cumsum(np.log(k[1:]))])
    return np.searchsorted(np.cumsum(np.exp(logs)), u).clip(max=most)


def _starts(counts: Ints) -> Ints:
    starts = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=starts[1:])
    return starts


def _topics(n_topics: int | None, n_labels: int) -> int:
    if n_topics is None:
        return max(1, round(n_labels / TOPIC_LABELS))
    if _whole("n_topics", n_topics, 1) > n_labels:
        raise SettingError(
            f"n_topics is {n_topics} for {n_labels} labels", remedy="use at most one for each label"
        )
    return n_topics


def _whole(name: str, value: int, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or not least <= value < 2**31:
        raise SettingError(f"{name} is {value!r}", remedy=f"use a whole number from {least} to {2**31 - 1}")
    return int(value)


def _between(name: str, value: float, low: float, high: float) -> float:
    if not isinstance(value, (int, float, np.number)) or not low <= value <= high:
        raise SettingError(f"{name} is {value!r}", remedy=f"use a number from {low:g} to {high:g}")
    return float(value)
