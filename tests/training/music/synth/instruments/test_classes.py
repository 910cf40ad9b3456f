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
    ],
)
def test_entries_and_their_classes(instrument: str, family: str, kind: str, expected: str) -> None:
    entry = {"instrument": instrument, "family": family, "kind": kind}
    assert INSTRUMENTS[instrument_class(entry)] == expected


def test_mixed_sections_and_tremolos_have_no_class() -> None:
    viola = {"instrument": "viola", "family": "strings", "kind": "sustained"}
    assert instrument_class(viola | {"source": "Cello & Viola sections"}) == UNKNOWN
    assert instrument_class(viola | {"instrument": "tremolo"}) == UNKNOWN
