"""Baselines, worked out by hand."""

import pytest

from training.lambada.baselines import frequent_word, random_word

PASSAGES = [
    "the owl . the cat . owl".split(),  # the, owl, ., cat: 1 of 4
    "the dog , dog , the , dog".split(),  # the (first of equals), dog, ,: 1 of 3
    "the end came fast".split(),  # not in the passage
]


def test_any_word_of_the_passage() -> None:
    assert random_word(PASSAGES) == pytest.approx((1 / 4 + 1 / 3) / 3)


def test_the_most_frequent_word_is_no_punctuation() -> None:
    assert frequent_word(PASSAGES) == 0
    assert frequent_word(PASSAGES, common=1) == pytest.approx(2 / 3)
