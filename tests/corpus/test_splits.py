"""The near-duplicate key and the cut by groups."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from xmcascade.corpus.splits import near_duplicate_key, part_of_groups
from xmcascade.errors import DataError, SettingError


def slow_key(text):
    return re.sub(r"[\W\d_]+", " ", text.casefold()).strip() or text


@given(st.text(st.characters(max_codepoint=127)) | st.text())
def test_the_fast_key_is_the_slow_key(text):
    assert near_duplicate_key(text) == slow_key(text)


def test_the_fast_key_is_the_slow_key_for_every_ascii_character():
    for code in range(128):
        text = f"a{chr(code)}B {chr(code)}"
        assert near_duplicate_key(text) == slow_key(text), code


@pytest.mark.parametrize("other", ["the sea", "THE SEA!", "the\tsea, 2", " the_sea", "The--Sea (3)"])
def test_case_digits_blanks_and_punctuation_do_not_count(other):
    assert near_duplicate_key(other) == near_duplicate_key("The Sea")


@pytest.mark.parametrize("other", ["thesea", "the seas", "sea the", ""])
def test_letters_and_their_order_count(other):
    assert near_duplicate_key(other) != near_duplicate_key("The Sea")


@given(st.lists(st.integers(0, 30), min_size=2, max_size=200), st.floats(0.02, 0.98), st.integers(-9, 9))
def test_groups_stay_whole_and_both_parts_have_documents(keys, fraction, seed):
    try:
        part = part_of_groups(keys, len(keys), fraction, seed)
    except DataError as error:
        assert "cannot be cut" in str(error)
        return
    assert part.any() and not part.all()
    inside = {key for key, chosen in zip(keys, part, strict=True) if chosen}
    outside = {key for key, chosen in zip(keys, part, strict=True) if not chosen}
    assert not inside & outside


@given(st.permutations(range(40)), st.floats(0.1, 0.9))
def test_the_order_of_documents_does_not_matter(order, fraction):
    keys = np.array([i // 2 for i in range(40)])
    part = part_of_groups(keys, 40, fraction, 0)
    moved = part_of_groups(keys[list(order)], 40, fraction, 0)
    assert np.array_equal(part[list(order)], moved)


@pytest.mark.parametrize("fraction", [0.01, 0.1, 0.37, 0.5, 0.9])
def test_single_documents_are_cut_at_the_nearest_number(fraction):
    assert part_of_groups(range(1000), 1000, fraction, 0).sum() == round(1000 * fraction)


@pytest.mark.parametrize("seed", range(8))
def test_a_large_group_in_the_way_is_passed_over(seed):
    keys = ["large"] * 900 + list(range(100))
    assert part_of_groups(keys, 1000, 0.05, seed).sum() == 50


def test_the_seed_changes_the_part():
    parts = {part_of_groups(range(100), 100, 0.5, seed).tobytes() for seed in range(5)}
    assert len(parts) == 5


def test_the_part_is_the_same_on_every_machine():
    assert np.flatnonzero(part_of_groups("abcdefghij", 10, 0.3, 0)).tolist() == [0, 3, 7]


@pytest.mark.parametrize(
    ("keys", "fraction", "message"),
    [
        (
            "aaaa",
            0.5,
            "the one group of 4 documents with the same key cannot be cut at 0.5. Remedy: use another",
        ),
        ("abcd", 0.01, "4 groups of 4 documents with the same key cannot be cut at 0.01"),
        ("abcd", 0.99, "4 groups of 4 documents with the same key cannot be cut at 0.99"),
        ("", 0.5, "the one group of 0 documents"),
    ],
)
def test_what_cannot_be_cut_is_refused(keys, fraction, message):
    with pytest.raises(DataError) as caught:
        part_of_groups(keys, len(keys), fraction, 0)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize("fraction", [0, 1, -0.1, 1.5, float("nan")])
def test_a_fraction_out_of_range(fraction):
    with pytest.raises(SettingError, match=r"fraction is .*between 0 and 1"):
        part_of_groups("ab", 2, fraction, 0)


def test_a_seed_out_of_range():
    with pytest.raises(SettingError, match="64-bit"):
        part_of_groups("ab", 2, 0.5, 2**63)
