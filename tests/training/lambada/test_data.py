"""Words become symbols, clean and as in the released code with its flaws."""

from pathlib import Path

from training.lambada.reader import encode_clean, encode_released, place
from training.lambada.text.novels import read_novels
from training.lambada.words import Vocabulary, common_names, known_words

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
    vocabulary = Vocabulary.clean(WORDS, numbered=2, names=("yan", "owl"))
    encoded = encode_clean(vocabulary, PASSAGE)
    assert vocabulary.mask == 2
    # `and` is the first of those that occur once (3, 4), `zed` of those that occur more often
    # (5, 6), `yan` of the names that occur once (7, 8); `;` is not a word.
    assert encoded.inputs.tolist() == [11, 12, 13, 5, 1, 5, 13, 7, 3, 2]
    assert encoded.targets.tolist() == [1, 1, 1, 2, 1, 2, 1, 1, 1, 1]
    assert len(vocabulary) == 14


def test_frequent_and_late_unknown_words_are_numbered_first() -> None:
    vocabulary = Vocabulary.clean(("the",), numbered=2, names=("ada", "bea"))
    encoded = encode_clean(vocabulary, "cat dog cat ada owl bea ada the".split())
    assert encoded.inputs.tolist() == [5, 4, 5, 9, 3, 7, 9, 2]
    crowded = encode_clean(vocabulary, "cat dog owl eel the".split())
    assert crowded.inputs.tolist() == [1, 1, 4, 3, 2]


def test_padding_lies_around_the_passage() -> None:
    encoded = encode_clean(Vocabulary.clean(WORDS, numbered=0), "owl saw owl".split())
    inputs, targets = place(encoded, length=8, offset=3)
    assert inputs.tolist() == [0, 0, 0, 4, 5, 2, 0, 0]
    assert targets.tolist() == [0, 0, 0, 2, 1, 1, 0, 0]


def test_vocabularies_are_kept_on_disk(tmp_path: Path) -> None:
    path = tmp_path / "vocabulary.json"
    vocabulary = Vocabulary.clean(("été", "the"), numbered=3, names=("ada", "the"))
    vocabulary.save(path)
    assert Vocabulary.load(path) == vocabulary
    assert vocabulary.names == {"ada"}


def test_words_and_names_that_other_novels_share(tmp_path: Path) -> None:
    people = ["Low", "Low", "Low", "Low", "May", "May", "Day", "Day", "Fox"]
    for number, name in enumerate(people):
        (tmp_path / f"{number}.txt").write_text(f"So Mr. {name} left. Then Mr. {name} met a fox.")
    novels = read_novels(tmp_path)
    known = known_words(novels)
    assert {*known[:2]} == {".", "mr."}
    assert {"mr.", "met", "left", "fox"} <= {*known}
    assert not {"low", "may", "day"} & {*known}
    assert {"mr.", "low"} == {*common_names(novels)}
