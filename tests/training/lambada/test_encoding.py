"""Words become symbols, clean and as in the released code with its flaws."""

from __future__ import annotations

from pathlib import Path

import pytest

from model.checkpoint import CheckpointError
from training.lambada.encoding import encode_clean, encode_released, place
from training.lambada.novels import read_novels
from training.lambada.vocabulary import Vocabulary, known_words

WORDS = ("the", "owl", "saw")
PASSAGE = "the owl saw zed ; zed saw yan and zed".split()


def test_released_symbols() -> None:
    learnt = encode_released(Vocabulary.released(WORDS, vectors=False), PASSAGE)
    assert learnt.inputs.tolist() == [4, 5, 6, 1, 1, 1, 6, 1, 1, 3]
    # The answer is unknown, so every unknown word is right: `;`, `yan` and `and` as well.
    assert learnt.targets.tolist() == [1, 1, 1, 2, 2, 2, 1, 2, 2, 1]


def test_the_released_mask_is_a_word_of_the_vectors() -> None:
    vocabulary = Vocabulary.released(WORDS, vectors=True)
    assert vocabulary.mask == vocabulary.symbols["owl"] == 3
    encoded = encode_released(vocabulary, "the owl saw the owl".split())
    assert encoded.inputs.tolist() == [2, 3, 4, 2, 3]
    assert encoded.targets.tolist() == [1, 2, 1, 1, 2]  # the mask counts as the answer


def test_clean_symbols_tell_unknown_words_apart() -> None:
    vocabulary = Vocabulary.clean(WORDS, numbered=2)
    encoded = encode_clean(vocabulary, PASSAGE)
    assert vocabulary.mask == 2
    # zed occurs twice: 3; of the others the later is 4, then none is left; `;` is no word.
    assert encoded.inputs.tolist() == [5, 6, 7, 3, 1, 3, 7, 1, 4, 2]
    assert encoded.targets.tolist() == [1, 1, 1, 2, 1, 2, 1, 1, 1, 1]
    assert encoded.answerable
    assert len(vocabulary) == 8


def test_the_answer_is_not_counted_among_the_unknown() -> None:
    vocabulary = Vocabulary.clean((), numbered=1)
    context = "yan zed".split()
    assert (
        encode_clean(vocabulary, [*context, "yan"]).inputs.tolist()
        == encode_clean(vocabulary, [*context, "zed"]).inputs.tolist()
        == [1, 3, 2]
    )


def test_an_answer_that_is_not_in_the_passage() -> None:
    encoded = encode_clean(Vocabulary.clean(WORDS, numbered=2), "the owl saw".split())
    assert not encoded.answerable


def test_padding_lies_around_the_passage() -> None:
    encoded = encode_clean(Vocabulary.clean(WORDS, numbered=0), "owl saw owl".split())
    inputs, targets = place(encoded, length=8, offset=3)
    assert inputs.tolist() == [0, 0, 0, 4, 5, 2, 0, 0]
    assert targets.tolist() == [0, 0, 0, 2, 1, 1, 0, 0]


def test_vocabularies_are_kept_on_disk(tmp_path: Path) -> None:
    path = tmp_path / "vocabulary.json"
    vocabulary = Vocabulary.clean(("été", "the"), numbered=3)
    vocabulary.save(path)
    assert Vocabulary.load(path) == vocabulary
    path.write_text('{"first": 1}')
    with pytest.raises(CheckpointError, match="cannot read the vocabulary"):
        Vocabulary.load(path)
    with pytest.raises(CheckpointError, match="cannot read the vocabulary"):
        Vocabulary.load(tmp_path / "missing.json")


def test_names_of_few_novels_are_not_known(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("So Mr. Low met Anne. Then Mr. Low left.")
    (tmp_path / "b.txt").write_text("So Mr. Day met May.")
    (tmp_path / "c.txt").write_text("He met nobody.")
    known = known_words(read_novels(tmp_path))
    assert known[0] == "."
    assert {"mr.", "met", "left", "nobody"} <= {*known}
    assert not {"low", "anne", "day", "may"} & {*known}
