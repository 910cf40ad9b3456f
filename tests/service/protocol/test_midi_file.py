"""Tests of MIDI files, read back by mido and pretty_midi."""

import io
from dataclasses import dataclass

import mido
import pretty_midi
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model.instruments import PROGRAMS
from service.notes.events import Note, PedalPress
from service.notes.note_collector import midi_file
from service.protocol import midi_file as files
from service.protocol.midi_file import (
    FRAME_S,
    MASTER,
    MEMBERS,
    PEDAL_INSTRUMENTS,
    RANGE_SEMITONES,
)
from service.protocol.tempo import TICKS_PER_BEAT, Tempo

TICK_S = 0.5 / TICKS_PER_BEAT


@st.composite
def performances(draw: st.DrawFn) -> list[Note]:
    """Draw notes of which no two of one pitch overlap. Some are adjacent."""
    notes: list[Note] = []
    for pitch in draw(st.lists(st.integers(0, 127), unique=True, max_size=4)):
        time_s = 0.0
        for _ in range(draw(st.integers(0, 4))):
            onset_s = time_s + draw(st.sampled_from([0.0, 0.0116, 1.7]))
            time_s = onset_s + draw(st.floats(0.005, 100))
            velocity = draw(st.integers(1, 127))
            notes.append(Note(len(notes), pitch, velocity, 1.0, 0, 0, onset_s, time_s))
    return notes


@settings(max_examples=30)
@given(performances())
def test_notes_survive_the_round_trip(notes: list[Note]) -> None:
    opened = pretty_midi.PrettyMIDI(io.BytesIO(midi_file(notes)))
    read = [note for instrument in opened.instruments for note in instrument.notes]
    read.sort(key=lambda n: (round(n.start, 4), n.pitch))
    notes.sort(key=lambda n: (round(round(n.onset_s / TICK_S) * TICK_S, 4), n.pitch))
    for copy, note in zip(read, notes, strict=True):
        assert (copy.pitch, copy.velocity) == (note.pitch, note.velocity)
        assert copy.start == pytest.approx(note.onset_s, abs=0.51 * TICK_S)
        assert copy.end == pytest.approx(note.offset_s, abs=0.51 * TICK_S)


def test_file_is_deterministic_and_repeated_notes_do_not_overlap() -> None:
    notes = [
        Note(0, 60, 100, 0.9, 0, 10, 0.0, 0.5),
        Note(1, 60, 90, 0.9, 10, 20, 0.5, 0.500001),  # repeated, shorter than a tick
        Note(2, 40, 90, 0.9, 10, 20, 1.0, 2.0),
        Note(3, 30, 90, 0.9, 10, 20, 1.0, 2.0),
    ]
    data = midi_file(notes)
    assert data == midi_file(reversed(notes))
    opened = mido.MidiFile(file=io.BytesIO(data))
    tempo, track = opened.tracks
    assert [message.type for message in tempo] == ["set_tempo", "end_of_track"]
    assert [(m.note, m.velocity, m.time) for m in track if m.type == "note_on"] == [
        (60, 100, 0),
        (60, 0, TICKS_PER_BEAT),
        (60, 90, 0),
        (60, 0, 1),
        (30, 90, TICKS_PER_BEAT - 1),
        (40, 90, 0),
        (30, 0, 2 * TICKS_PER_BEAT),
        (40, 0, 0),
    ]


def test_beats_bars_and_key_do_not_change_times() -> None:
    notes = [Note(0, 60, 100, 0.9, 0, 10, 1.03, 2.0)]
    tempo = Tempo((0.5, 1.0, 1.6), 1.0, ((1, 3, 4),), "F#m")
    opened = pretty_midi.PrettyMIDI(io.BytesIO(midi_file(notes, tempo=tempo)))
    assert opened.instruments[0].notes[0].start == pytest.approx(1.03, abs=0.001)
    signatures = [(s.numerator, round(s.time, 3)) for s in opened.time_signature_changes]
    assert signatures == [(2, 0.0), (3, 1.0)]  # bar of the lead-in and the pickup
    assert [key.key_number for key in opened.key_signature_changes] == [12 + 6]
    assert opened.get_beats()[1:4] == pytest.approx([0.5, 1.0, 1.6], abs=1e-3)


@pytest.mark.parametrize(
    "beats_s",
    [(-5.0, -4.5), (-100.0, -99.0, 0.5, 1.0), (0.0, 17.0), (0.0, 0.5, 60.0, 60.5), (30.0, 60.0)],
)
def test_unusual_beats_do_not_change_times(beats_s: tuple[float, ...]) -> None:
    notes = [Note(0, 60, 100, 0.9, 0, 10, second, second + 0.5) for second in range(70)]
    opened = pretty_midi.PrettyMIDI(io.BytesIO(midi_file(notes, tempo=Tempo(beats_s))))
    onsets_s = [note.start for note in opened.instruments[0].notes]
    assert onsets_s == pytest.approx(range(70), abs=0.02)


@pytest.mark.parametrize("hours", [1, 10])
@pytest.mark.parametrize("bpm", [20, 400])
def test_times_of_long_recordings_are_exact(hours: float, bpm: float) -> None:
    end_s = 3600.0 * hours
    note = Note(0, 60, 100, 0.9, 0, 10, end_s - 0.5, end_s)
    data = midi_file([note], tempo=Tempo((0.0, 60 / bpm)))
    (found,) = pretty_midi.PrettyMIDI(io.BytesIO(data)).instruments[0].notes
    assert (found.start, found.end) == pytest.approx((end_s - 0.5, end_s), abs=0.01)


def test_each_instrument_has_a_track_without_drums() -> None:
    notes = [
        Note(i, 60 + i, 80, 1.0, 0, 0, 0.1 * i, 0.1 * i + 0.5, name, 0.9)
        for i, name in enumerate(PROGRAMS)
    ]
    pedal = [PedalPress(0.25, 1.5), PedalPress(1.5, 1.5)]  # pressed again, shorter than a tick
    data = midi_file(reversed(notes), pedal)
    assert data == midi_file(notes, pedal)
    file = mido.MidiFile(file=io.BytesIO(data))
    assert file.type == 1
    tempo, *tracks = file.tracks
    assert [message.type for message in tempo] == ["set_tempo", "end_of_track"]
    labels = {"plucked": "guitar"}  # label in files
    assert [track.name for track in tracks] == [labels.get(name, name) for name in PROGRAMS]
    channels = [{m.channel for m in track if not m.is_meta} for track in tracks]
    assert all(len(channel) == 1 and 9 not in channel for channel in channels)
    assert len(set.union(*channels)) == 15
    for part, name in zip(
        pretty_midi.PrettyMIDI(io.BytesIO(data)).instruments, PROGRAMS, strict=True
    ):
        assert (part.name, part.program) == (labels.get(name, name), PROGRAMS[name])
        assert len(part.notes) == 1
    for name, track in zip(PROGRAMS, tracks, strict=True):
        values = [m.value for m in track if m.type == "control_change"]
        assert values == ([127, 0, 127, 0] if name in PEDAL_INSTRUMENTS else [])


# -- MPE: notes with bends -------------------------------------------------------------------------


@dataclass
class BentNote:
    pitch: int
    onset_s: float
    offset_s: float
    bends: tuple[float, ...] | None
    instrument: str | None = "voice"
    velocity: int = 80


PARTS = ("piano", "violin")


def synthesise(file: bytes) -> list[tuple[int, float, float, list[tuple[float, float]]]]:
    """Return (pitch, onset in s, offset in s, [(time in s, cents)]) of each note."""
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


def test_bends_affect_only_their_note() -> None:
    rising = tuple(float(i) for i in range(40))
    notes = [
        BentNote(60, 0.5, 1.5, rising),
        BentNote(64, 0.6, 1.5, None),
        BentNote(67, 0.7, 1.2, (-20.0,) * 30),
    ]
    first, second, third = synthesise(files.midi_file(notes, [], {"voice": 53}))
    assert [note[0] for note in (first, second, third)] == [60, 64, 67]
    assert first[1:3] == pytest.approx((0.5, 1.5), abs=0.002)
    for frame, cents in enumerate(rising):
        now_s = first[1] + frame * FRAME_S + 0.002
        last = [value for time_s, value in first[3] if time_s <= now_s][-1]
        assert last == pytest.approx(cents, abs=1.01)
    assert {cents for _, cents in second[3]} == {0.0}
    assert [cents for _, cents in third[3]] == pytest.approx([-20.0], abs=0.5)


def test_mpe_zone_and_programs_precede_the_notes() -> None:
    notes = [BentNote(60, 0.0, 1.0, (5.0,)), BentNote(48, 0.1, 1.0, (1.0,), "cello")]
    midi = mido.MidiFile(file=io.BytesIO(files.midi_file(notes, [], {"cello": 42, "voice": 53})))
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


def test_simultaneous_notes_have_separate_channels() -> None:
    notes = [
        BentNote(40 + number, onset_s, onset_s + 1.9, (number,))
        for repeat in range(3)
        for number in range(len(MEMBERS))
        for onset_s in [0.02 * number + 2 * repeat]
    ]
    read = synthesise(files.midi_file(notes, [], {}))
    assert [note[0] for note in read] == [note.pitch for note in notes]
    for pitch, _, _, bends in read:
        assert [cents for _, cents in bends] == pytest.approx([pitch - 40], abs=0.5)


def test_notes_without_a_silent_channel_have_no_bends() -> None:
    count = len(MEMBERS) + 4
    notes = [BentNote(40 + n, 0.1 * n, 5.0, (-30.0,) * 200, PARTS[n % 2]) for n in range(count)]
    file = files.midi_file(notes, [(0.0, True), (6.0, False)], PROGRAMS)
    for pitch, _, _, bends in synthesise(file):
        assert {round(cents) for _, cents in bends} == {-30 if pitch < 40 + len(MEMBERS) else 0}
    program = pedal = 0
    for message in mido.merge_tracks(mido.MidiFile(file=io.BytesIO(file)).tracks):
        if message.type == "program_change" and message.channel == MASTER:
            program = message.program
        elif message.is_cc(files.SUSTAIN) and message.channel == MASTER:
            pedal = message.value
        elif message.type == "note_on" and message.channel == MASTER and message.velocity:
            instrument = PARTS[message.note % 2]
            assert (program, pedal) == (PROGRAMS[instrument], 127 * (instrument == "piano"))


def test_pedal_sustains_no_other_instrument() -> None:
    notes = [
        BentNote(60, 0.0, 0.5, None, "piano"),
        BentNote(69, 0.6, 0.9, (5.0,), "violin"),
        BentNote(64, 1.5, 2.0, None, "piano"),
    ]
    pedal = [(0.2, True), (1.0, False), (1.4, True), (3.0, False)]
    midi = mido.MidiFile(file=io.BytesIO(files.midi_file(notes, pedal, PROGRAMS)))
    used: dict[int, int] = {}  # pitch of the latest note of a channel
    changes: list[tuple[int, bool]] = []  # of channels with notes: pitch, and True if pressed
    for message in mido.merge_tracks(midi.tracks):
        if message.type == "note_on" and message.velocity:
            used[message.channel] = message.note
        elif message.type == "control_change" and message.control == files.SUSTAIN:
            assert message.channel in MEMBERS
            if message.channel in used:
                changes.append((used[message.channel], message.value > 0))
    assert changes == [(60, True), (60, False), (60, True), (64, False)]


def test_pedal_of_a_piano_alone_is_on_the_master_channel() -> None:
    notes = [BentNote(60, 0.0, 1.0, (5.0,), "piano"), BentNote(64, 0.5, 1.0, (5.0,), "piano")]
    midi = mido.MidiFile(file=io.BytesIO(files.midi_file(notes, [(0.2, True)], PROGRAMS)))
    pedal = [
        (message.channel, message.value)
        for message in mido.merge_tracks(midi.tracks)
        if message.type == "control_change" and message.control == files.SUSTAIN
    ]
    assert pedal == [(MASTER, 127), (MASTER, 0)]


@pytest.mark.parametrize("key", ["Gb", "Ebm", "F#", "C"])
def test_key_keeps_its_name(key: str) -> None:
    """The score of the notes has this key, too."""
    data = midi_file([Note(0, 60, 100, 0.9, 0, 10, 0.0, 0.5)], tempo=Tempo(key=key))
    track = mido.MidiFile(file=io.BytesIO(data)).tracks[0]
    assert [message.key for message in track if message.type == "key_signature"] == [key]
