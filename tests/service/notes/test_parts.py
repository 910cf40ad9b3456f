"""Tests of the reassignment of stray instruments at the end of a recording."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from model.config import INSTRUMENTS
from service.notes.events import Note
from service.notes.parts import settle_instruments

FRAME_S = 128 / 11_025


def make_note(number: int, onset: int, length: int, pitch: int, instrument: str | None) -> Note:
    frames = onset, onset + length
    times = round(frames[0] * FRAME_S, 6), round(frames[1] * FRAME_S, 6)
    return Note(number, pitch, 80, 0.9, *frames, *times, instrument, 0.7)


def melody(names: list[str], first: int = 0, pitch: int = 60) -> list[Note]:
    """Return a melody whose notes have these labels."""
    return [make_note(i, first + 20 * i, 20, pitch + i % 5, name) for i, name in enumerate(names)]


def instrument_counts(notes: list[Note]) -> dict[str | None, int]:
    return dict(Counter(note.instrument for note in notes))


def test_soloist_keeps_one_instrument() -> None:
    names = ["saxophone", "voice", "saxophone", "violin", "saxophone", "voice"] * 8
    settled = settle_instruments(melody(names))
    assert instrument_counts(settled) == {"saxophone": 48}
    assert {note.instrument_probability for note in settled} == {0.7, None}


def test_simultaneous_instruments_are_preserved() -> None:
    violin = melody(["violin"] * 36 + ["viola"] * 4, pitch=76)
    cello = melody(["cello"] * 34 + ["voice"] * 5, first=7, pitch=48)
    settled = settle_instruments(violin + cello)
    assert instrument_counts(settled) == {"violin": 40, "cello": 39}


def test_successive_soloists_are_preserved() -> None:
    flute, pause = melody(["flute"] * 18 + ["oboe"] * 2), round(12 / FRAME_S)
    horn = melody(["horn"] * 12 + ["voice"], first=400 + pause)
    assert instrument_counts(settle_instruments(flute + horn)) == {"flute": 20, "horn": 13}


labels = st.none() | st.sampled_from(INSTRUMENTS[:4])
recordings = st.lists(
    st.builds(
        make_note,
        st.just(0),
        st.integers(0, 3000),
        st.integers(1, 90),
        st.integers(20, 100),
        labels,
    )
)


@given(recordings)
def test_settling_changes_only_instruments_and_adds_none(notes: list[Note]) -> None:
    settled = settle_instruments(notes)
    assert [(n.onset_s, n.pitch) for n in settled] == [(n.onset_s, n.pitch) for n in notes]
    assert instrument_counts(settled).keys() <= instrument_counts(notes).keys()
    for before, after in zip(notes, settled, strict=True):
        assert (before.instrument is None) == (after.instrument is None)
        assert before.instrument != after.instrument or before == after
