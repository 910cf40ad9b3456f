"""MIDI files with a bend for each note."""

import io
from dataclasses import dataclass
from pathlib import Path

import mido
import pretty_midi
import pytest

from service.protocol.midi_file import midi_file
from service.protocol.mpe import FRAME_S, MEMBERS, RANGE_SEMITONES


@dataclass
class Sung:
    pitch: int
    onset_s: float
    offset_s: float
    bends: tuple[float, ...] | None
    instrument: str | None = "voice"
    velocity: int = 80


def heard(file: bytes) -> list[tuple[int, float, float, list[tuple[float, float]]]]:
    """Each note as a synthesiser plays it: pitch, onset, offset, and its bends as (s, cents)."""
    cents = dict.fromkeys(range(16), 0.0)
    sounding: dict[tuple[int, int], tuple[float, list[tuple[float, float]]]] = {}
    notes, now_s = [], 0.0
    for message in mido.MidiFile(file=io.BytesIO(file)):
        now_s += message.time
        if message.type == "pitchwheel":
            cents[message.channel] = message.pitch / 8192 * RANGE_SEMITONES * 100
            for (channel, _), (_, bends) in sounding.items():
                if channel == message.channel:
                    bends.append((now_s, cents[channel]))
        elif message.type == "note_on" and message.velocity:
            key = message.channel, message.note
            assert key not in sounding
            sounding[key] = now_s, [(now_s, cents[message.channel])]
        elif message.type in ("note_on", "note_off"):
            onset_s, bends = sounding.pop((message.channel, message.note))
            notes.append((message.note, onset_s, now_s, bends))
    assert not sounding
    return sorted(notes, key=lambda note: note[1])


def test_each_note_bends_alone() -> None:
    rising = tuple(float(i) for i in range(40))
    notes = [
        Sung(60, 0.5, 1.5, rising),
        Sung(64, 0.6, 1.5, None),
        Sung(67, 0.7, 1.2, (-20.0,) * 30),
    ]
    first, second, third = heard(midi_file(notes, [], {"voice": 53}))
    assert [note[0] for note in (first, second, third)] == [60, 64, 67]
    assert first[1:3] == pytest.approx((0.5, 1.5), abs=0.002)
    for number, cents in enumerate(rising):
        at_s = first[1] + number * FRAME_S + 0.002
        last = [value for time_s, value in first[3] if time_s <= at_s][-1]
        assert last == pytest.approx(cents, abs=1.01)
    assert {cents for _, cents in second[3]} == {0.0}
    assert [cents for _, cents in third[3]] == pytest.approx([-20.0], abs=0.5)


def test_the_zone_is_declared_and_programs_follow_the_notes() -> None:
    notes = [Sung(60, 0.0, 1.0, (5.0,)), Sung(48, 0.1, 1.0, (1.0,), "cello")]
    midi = mido.MidiFile(file=io.BytesIO(midi_file(notes, [], {"cello": 42, "voice": 53})))
    messages = list(mido.merge_tracks(midi.tracks))
    controls = [(m.channel, m.control, m.value) for m in messages if m.type == "control_change"]
    assert controls[:3] == [(0, 101, 0), (0, 100, 6), (0, 6, 15)]
    programs: dict[int, int] = {}
    for message in messages:
        if message.type == "program_change":
            programs[message.channel] = message.program
        if message.type == "note_on":
            assert message.channel in MEMBERS
            assert programs[message.channel] == {60: 53, 48: 42}[message.note]


def test_as_many_notes_as_there_are_channels_never_share_one() -> None:
    notes = [
        Sung(40 + number, 0.02 * number + 2 * again, 0.02 * number + 2 * again + 1.9, (number,))
        for again in range(3)
        for number in range(len(MEMBERS))
    ]
    found = heard(midi_file(notes, [], {}))
    assert [note[0] for note in found] == [note.pitch for note in notes]
    for pitch, _, _, bends in found:
        assert [cents for _, cents in bends] == pytest.approx([pitch - 40], abs=0.5)


def test_music21_and_pretty_midi_import_a_take_with_bends(tmp_path: Path) -> None:
    notes = [
        Sung(60 + step, step, step + 1.0, tuple(10.0 * (i % 9) for i in range(80)))
        for step in range(6)
    ]
    path = tmp_path / "take.mid"
    path.write_bytes(midi_file(notes, [], {"voice": 53}))
    parts = pretty_midi.PrettyMIDI(str(path)).instruments
    found = [note for part in parts for note in part.notes]
    assert sorted(note.pitch for note in found) == [note.pitch for note in notes]
    assert sum(len(part.pitch_bends) for part in parts) >= 6 * 80
    music21 = pytest.importorskip("music21")
    score = music21.converter.parse(path)
    found = sorted((float(n.offset), n.pitch.midi) for n in score.flatten().notes)
    assert found == [(2.0 * note.onset_s, note.pitch) for note in notes]
