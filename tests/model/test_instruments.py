"""Classes of instruments and General MIDI's programs."""

from model.config import HEADS, INSTRUMENTS
from model.instruments import PROGRAMS, distinguished_by, instrument_of


def test_every_class_is_that_of_its_own_program() -> None:
    assert tuple(PROGRAMS) == INSTRUMENTS
    assert [instrument_of(program) for program in PROGRAMS.values()] == list(INSTRUMENTS)
    assert instrument_of(48) is None  # a string section
    assert instrument_of(127) is None


def test_the_heads_determine_the_predicted_classes() -> None:
    assert distinguished_by(HEADS) == INSTRUMENTS
    assert distinguished_by(("frame", "instrument:cello", "instrument:piano")) == ("piano", "cello")
    assert distinguished_by(("frame", "onset")) == ()
