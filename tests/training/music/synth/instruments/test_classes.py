import pytest

from model.config import INSTRUMENTS
from model.instruments import UNKNOWN
from training.music.synth.instruments.bank import instrument_class


@pytest.mark.parametrize(
    ("instrument", "family", "kind", "expected"),
    [
        ("electric_grand", "keyboard", "decaying", "electric piano"),
        ("contrabass", "strings", "decaying", "plucked"),
        ("contrabass", "strings", "sustained", "contrabass"),
        ("baritone_sax", "winds", "sustained", "saxophone"),
        ("tuba_staccato", "winds", "decaying", "brass"),
        ("tremolo", "strings", "sustained", None),
    ],
)
def test_entries_and_their_classes(
    instrument: str, family: str, kind: str, expected: str | None
) -> None:
    entry = {"instrument": instrument, "family": family, "kind": kind}
    number = INSTRUMENTS.index(expected) if expected else UNKNOWN
    assert instrument_class(entry) == number
    assert instrument_class(entry | {"source": "Cello & Viola sections"}) == UNKNOWN
