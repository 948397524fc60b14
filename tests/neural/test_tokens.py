"""Texts as token ids, and the order in which batches take them."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neural.tiny import FAMILIES, TEXTS, tiny_tokenizer
from xmcascade.errors import DataError, SettingError
from xmcascade.neural import TokenStore, batches, padded, tokens
from xmcascade.store import Strings

RUN = settings(max_examples=50, deadline=None)
WORDS = tiny_tokenizer()
LENGTHS = st.lists(st.integers(1, 40), max_size=300).map(lambda found: np.array(found, np.int64))
STORES = st.lists(st.lists(st.integers(1, 99), min_size=1, max_size=9), min_size=1, max_size=8)


def documents(store):
    return [store.ids[a:b].tolist() for a, b in itertools.pairwise(store.offsets)]


def store_of(lists):
    return TokenStore(np.concatenate(lists), np.cumsum([0, *map(len, lists)]))


# The store ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES)
def test_ids_are_the_tokenizers_own(family):
    tokenizer = tiny_tokenizer(family)
    store = TokenStore.of(TEXTS, tokenizer, 64)
    assert documents(store) == [tokenizer.encode(text).ids for text in TEXTS]
    assert store.lengths.tolist() == [len(tokenizer.encode(text).ids) for text in TEXTS]


@pytest.mark.parametrize("family", FAMILIES)
def test_long_texts_are_cut_and_keep_their_special_tokens(family):
    tokenizer = tiny_tokenizer(family)
    whole = tokenizer.encode(TEXTS[0]).ids
    (short,) = documents(TokenStore.of(TEXTS[:1], tokenizer, 5))
    assert len(short) == 5 < len(whole)
    assert short == (whole[:3] + whole[-2:] if family == "xlnet" else whole[:4] + whole[-1:])


def test_a_text_without_tokens_is_a_document():
    store = TokenStore.of(["", "dog", " \n", ""], WORDS, 8)
    assert store.lengths.tolist() == [2, 3, 2, 2]
    assert documents(store)[0] == [WORDS.token_to_id("[CLS]"), WORDS.token_to_id("[SEP]")]


def test_no_texts():
    store = TokenStore.of([], WORDS, 8)
    assert len(store) == 0
    assert store.lengths.tolist() == []


def test_the_callers_tokenizer_stays_as_it_was():
    tokenizer = tiny_tokenizer()
    tokenizer.enable_truncation(3)
    tokenizer.enable_padding(length=30)
    before = tokenizer.to_str()
    store = TokenStore.of(TEXTS, tokenizer, 64)
    assert tokenizer.to_str() == before
    assert documents(store) == [WORDS.encode(text).ids for text in TEXTS]


def test_strings_are_as_good_as_a_list():
    assert documents(TokenStore.of(Strings.of(TEXTS), WORDS, 8)) == documents(TokenStore.of(TEXTS, WORDS, 8))


@pytest.mark.parametrize("max_tokens", [-1, 0, 2])
def test_a_length_without_room_for_text_is_refused(max_tokens):
    with pytest.raises(SettingError, match=rf"max_tokens is {max_tokens}.*use 3 or more"):
        TokenStore.of(TEXTS, WORDS, max_tokens)


def test_ids_are_as_small_as_the_vocabulary_allows():
    assert TokenStore.of(TEXTS, WORDS, 8).ids.dtype == np.uint16
    many = tiny_tokenizer()
    many.add_tokens([f"word{i}" for i in range(2**16)])
    large = TokenStore.of(["word65535 dog"], many, 8)
    assert large.ids.dtype == np.int32
    assert large.ids.max() == many.token_to_id("word65535") >= 2**16


@RUN
@given(st.lists(st.text(alphabet="dogcat é\n", max_size=30), max_size=20), st.integers(1, 40))
def test_mapped_is_as_in_memory(tmp_path_factory, texts, block):
    folder = tmp_path_factory.mktemp("tokens")
    within = TokenStore.of(texts, WORDS, 6)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tokens, "BLOCK_BYTES", block)
        made = TokenStore.of(texts, WORDS, 6, folder)
    for mapped in (made, TokenStore.open(folder)):
        np.testing.assert_array_equal(mapped.ids, within.ids)
        np.testing.assert_array_equal(mapped.offsets, within.offsets)
        assert mapped.ids.dtype == within.ids.dtype
        assert not len(texts) or not mapped.ids.flags.writeable


def test_large_vocabularies_are_mapped_too(tmp_path):
    many = tiny_tokenizer()
    many.add_tokens([f"word{i}" for i in range(2**16)])
    mapped = TokenStore.of(["word65535 dog"], many, 8, tmp_path)
    np.testing.assert_array_equal(mapped.ids, TokenStore.of(["word65535 dog"], many, 8).ids)


def test_a_folder_is_written_anew(tmp_path):
    old = TokenStore.of(TEXTS, WORDS, 64, tmp_path / "new")
    kept = documents(old)
    TokenStore.of(["dog"], WORDS, 64, tmp_path / "new")
    assert len(TokenStore.open(tmp_path / "new")) == 1
    assert documents(old) == kept


def test_unfinished_or_damaged_ids_are_refused(tmp_path):
    with pytest.raises(DataError, match="tokenise again"):
        TokenStore.open(tmp_path)
    TokenStore.of(TEXTS, WORDS, 64, tmp_path)
    with (tmp_path / tokens.IDS).open("r+b") as file:
        file.truncate(10)
    with pytest.raises(DataError, match="tokenise again"):
        TokenStore.open(tmp_path)


# Padding --------------------------------------------------------------------------------------------------


@RUN
@given(STORES, st.data(), st.booleans())
def test_a_batch_is_as_wide_as_its_longest(lists, data, left):
    docs = data.draw(st.lists(st.integers(0, len(lists) - 1), min_size=1, max_size=6))
    ids, real = padded(store_of(lists), docs, 0, left)
    assert ids.shape == real.shape == (len(docs), max(len(lists[doc]) for doc in docs))
    assert (ids[~real] == 0).all()
    for row, own, doc in zip(ids, real, docs, strict=True):
        assert row[own].tolist() == lists[doc]
        assert own[-1 if left else 0]
        assert np.abs(np.diff(own.astype(int))).sum() <= 1  # padding is on one side


@pytest.mark.parametrize("left", [False, True])
def test_a_batch_can_become_tensors(left):
    torch = pytest.importorskip("torch")
    ids, real = padded(store_of([[1, 2], [3]]), [0, 1], 0, left)
    assert torch.from_numpy(ids).shape == torch.from_numpy(real).shape == (2, 2)


def test_an_empty_batch():
    ids, real = padded(store_of([[1]]), [], 0)
    assert ids.shape == real.shape == (0, 1)


# Order ----------------------------------------------------------------------------------------------------


@RUN
@given(LENGTHS, st.integers(1, 9), st.integers(0, 2**32), st.integers(0, 5))
def test_each_document_comes_once_an_epoch(lengths, size, seed, epoch):
    found = list(batches(lengths, size, seed, epoch))
    assert sorted(np.concatenate([*found, np.zeros(0, np.int64)]).tolist()) == list(range(len(lengths)))
    assert len(found) == -(-len(lengths) // size)
    assert sum(len(batch) < size for batch in found) <= 1


@RUN
@given(LENGTHS, st.integers(1, 9), st.integers(0, 99), st.integers(0, 5), st.integers(0, 40))
def test_an_epoch_goes_on_from_any_batch(lengths, size, seed, epoch, start):
    whole = [batch.tolist() for batch in batches(lengths, size, seed, epoch)]
    assert [batch.tolist() for batch in batches(lengths, size, seed, epoch, start)] == whole[start:]


def test_epochs_and_seeds_differ():
    lengths = np.arange(100) % 7
    orders = [
        np.concatenate(list(batches(lengths, 4, seed, epoch))).tolist() for seed in (0, 1) for epoch in (0, 1)
    ]
    assert len(set(map(tuple, orders))) == 4


def test_little_is_padded():
    lengths = np.random.default_rng(0).integers(1, 200, 5000)
    width = sum(lengths[batch].max() * len(batch) for batch in batches(lengths, 32, 0, 0))
    assert width < 1.05 * lengths.sum()


def test_long_and_short_batches_are_mixed():
    lengths = np.random.default_rng(0).integers(1, 200, 5000)
    means = [lengths[batch].mean() for batch in batches(lengths, 32, 0, 0)]
    assert abs(np.corrcoef(means, np.arange(len(means)))[0, 1]) < 0.3
