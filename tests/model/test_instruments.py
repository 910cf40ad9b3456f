"""Tests of the instrument classes and their General MIDI programs."""

from model.config import HEADS, INSTRUMENTS
from model.instruments import PROGRAMS, UNKNOWN, class_of, predicted_instruments


def test_each_program_maps_to_its_class() -> None:
    assert tuple(PROGRAMS) == INSTRUMENTS
    assert [class_of(program) for program in PROGRAMS.values()] == [*range(len(INSTRUMENTS))]
    assert class_of(48) == class_of(127) == UNKNOWN  # a string section, a gunshot


def test_the_heads_determine_the_predicted_classes() -> None:
    assert predicted_instruments(HEADS) == INSTRUMENTS
    heads = ("frame", "instrument:cello", "instrument:piano")
    assert predicted_instruments(heads) == ("piano", "cello")
    assert predicted_instruments(("frame", "onset")) == ()
