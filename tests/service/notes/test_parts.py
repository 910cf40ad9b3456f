"""The instruments of a complete recording: one performer has one name."""

from collections import Counter
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from model.config import INSTRUMENTS
from service.notes.events import Note, NoteEvent
from service.notes.note_collector import NoteCollector
from service.notes.parts import settle_instruments

FRAME_S = 128 / 11_025


def note(number: int, onset: int, length: int, pitch: int, instrument: str | None) -> Note:
    frames = onset, onset + length
    times = round(frames[0] * FRAME_S, 6), round(frames[1] * FRAME_S, 6)
    return Note(number, pitch, 80, 0.9, *frames, *times, instrument, 0.7)


def line(names: list[str], first: int = 0, pitch: int = 60) -> list[Note]:
    """A monophonic line with these labels."""
    return [note(i, first + 20 * i, 20, pitch + i % 5, name) for i, name in enumerate(names)]


def count(notes: list[Note]) -> dict[str | None, int]:
    return dict(Counter(one.instrument for one in notes))


def test_a_soloist_has_one_instrument() -> None:
    names = ["saxophone", "voice", "saxophone", "violin", "saxophone", "voice"] * 8
    settled = settle_instruments(line(names))
    assert count(settled) == {"saxophone": 48}
    assert {one.instrument_probability for one in settled} == {0.7, None}


def test_two_performers_who_play_together_stay_two() -> None:
    violin = line(["violin"] * 36 + ["viola"] * 4, pitch=76)
    cello = line(["cello"] * 34 + ["voice"] * 5, first=7, pitch=48)
    settled = settle_instruments(violin + cello)
    assert count(settled) == {"violin": 40, "cello": 39}


def test_soloists_who_follow_each_other_stay_two() -> None:
    flute, pause = line(["flute"] * 18 + ["oboe"] * 2), round(12 / FRAME_S)
    horn = line(["horn"] * 12 + ["voice"], first=400 + pause)
    assert count(settle_instruments(flute + horn)) == {"flute": 20, "horn": 13}


def test_the_collector_settles_its_notes() -> None:
    collector = NoteCollector()
    for one in line(["piano"] * 9 + ["oboe"]):
        on = NoteEvent("note_on", one.note_id, 60, 80, 0.9, one.onset_frame, one.onset_s)
        on = replace(on, instrument=one.instrument)
        off = replace(on, kind="note_off", frame=one.offset_frame, time_s=one.offset_s)
        collector.add([on, off])
    collector.settle_instruments()
    assert count(collector.notes) == {"piano": 10}


labels = st.none() | st.sampled_from(INSTRUMENTS[:4])
recordings = st.lists(
    st.builds(
        note, st.just(0), st.integers(0, 3000), st.integers(1, 90), st.integers(20, 100), labels
    )
)


@given(recordings)
def test_settling_changes_instruments_alone_and_invents_none(notes: list[Note]) -> None:
    settled = settle_instruments(notes)
    assert [(n.onset_s, n.pitch) for n in settled] == [(n.onset_s, n.pitch) for n in notes]
    assert count(settled).keys() <= count(notes).keys()
    for before, after in zip(notes, settled, strict=True):
        assert (before.instrument is None) == (after.instrument is None)
        assert before.instrument != after.instrument or before == after
