"""Prose becomes tokens as in LAMBADA's files."""

import pytest

from training.lambada.text.tokens import paragraphs, sentence_starts, tokenise


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ('"What can I say?" Ellis said.', "`` What can I say ? '' Ellis said ."),
        ("I don't know; she'd said it's Anne's.", "I do n't know ; she 'd said it 's Anne 's ."),
        ("He said: \"'Stop,' he cried.\"", "He said : `` ` Stop , ' he cried . ''"),
        ("Mr. Smith--a well-known man--left...", "Mr. Smith -- a well-known man -- left ..."),
        ("at 9.30 o'clock", "at 9.30 o'clock"),
    ],
)
def test_punctuation_quotes_and_contractions(text: str, tokens: str) -> None:
    assert tokenise(text) == tokens.split()


def test_paragraphs_have_straight_quotes_and_end_in_punctuation() -> None:
    text = "CHAPTER I\n\n“Oh!” said _Anne_—then\nleft.\n\nTHE END\n\n“Don’t go!”\n"
    assert [" ".join(tokens) for tokens in paragraphs(text)] == [
        "`` Oh ! '' said Anne -- then left .",
        "`` Do n't go ! ''",
    ]


def test_sentences_end_where_the_next_one_begins() -> None:
    tokens = tokenise('"What?" he said. "No." She left! "Why?" Mr. Low asked')
    starts = sentence_starts(tokens)
    ends = [*starts[1:], len(tokens)]
    assert [" ".join(tokens[a:b]) for a, b in zip(starts, ends, strict=True)] == [
        "`` What ? '' he said .",
        "`` No . ''",
        "She left !",
        "`` Why ? ''",
        "Mr. Low asked",
    ]
