"""Tests of the MIDI files that the page writes and opens."""

import io
from typing import Any

import mido
import numpy as np
import pretty_midi
import pytest

from service.protocol.midi_file import FRAME_S, midi_file
from tests.service.page.browser import Tab
from tests.service.protocol.test_midi_file import BentNote, synthesise

Notes = list[dict[str, Any]]


def note(onset: float, offset: float, instrument: str | None = None, pitch: int = 60) -> Any:
    times = {"onset": onset, "offset": offset}
    return {"pitch": pitch, "velocity": 64, "instrument": instrument, **times}


def written(bench: Tab, notes: Notes, **take: Any) -> bytes:
    """Return the MIDI file of notes. ``take`` has their programs, pedal and beats."""
    script = """async ([notes, take]) => {
      const { midiFile } = await import('./notes/midi.js');
      return [...midiFile(notes, take)];
    }"""
    return bytes(bench.run(script, [notes, take]))


def opened(bench: Tab, file: bytes | mido.MidiFile) -> Any:
    """Return the fields ``notes``, ``programs``, ``pedal`` and ``beats`` of an opened file."""
    if isinstance(file, mido.MidiFile):
        memory = io.BytesIO()
        file.save(file=memory)
        file = memory.getvalue()
    script = """async (bytes) => {
      const { takeOfMidi } = await import('./notes/opening.js');
      const { notes, programs, pedal, beats } = takeOfMidi(Uint8Array.from(bytes).buffer, '');
      return { notes, programs, pedal, beats };
    }"""
    return bench.run(script, [*file])


def onsets_s(file: bytes) -> list[float]:
    (part,) = pretty_midi.PrettyMIDI(io.BytesIO(file)).instruments
    return [note.start for note in part.notes]


def beat(time_s: float, place: int, beats_per_bar: int, subdivision: int = 2) -> dict[str, float]:
    metre = {"beats_per_bar": beats_per_bar, "subdivision": subdivision}
    return {"time_s": time_s, "place": place % beats_per_bar, **metre}


@pytest.mark.parametrize("subdivision", [2, 3])
def test_midi_file_follows_the_beats(bench: Tab, subdivision: int) -> None:
    times_s = [0.4 + 0.5 * n + 0.02 * (n % 3) for n in range(24)]
    beats = [beat(t, n, 3, subdivision) for n, t in enumerate(times_s)]
    del beats[7:9]  # a gap that the page fills
    played_s = [0.1, *times_s, 14.0]
    file = written(bench, [note(t, t + 0.2) for t in played_s], beats=beats)
    assert onsets_s(file) == pytest.approx(played_s, abs=2e-3)
    midi = pretty_midi.PrettyMIDI(io.BytesIO(file))
    (bar,) = (change for change in midi.time_signature_changes if change.time > 0)
    assert (bar.numerator, bar.denominator) == ((3, 4) if subdivision == 2 else (9, 8))
    assert midi.get_downbeats()[1:8] == pytest.approx(times_s[:21:3], abs=0.03)


@pytest.mark.parametrize(
    "times_s",
    [
        (1.0, 21.0, 61.0, 62.0, 63.0),  # a tempo event has at most 16.8 s per quarter note
        (-0.6, -0.3, 0.0, 0.3, 0.6, 0.9),  # a pickup starts before the take
    ],
)
def test_unusual_beats_do_not_change_times(bench: Tab, times_s: tuple[float, ...]) -> None:
    beats = [beat(t, n, 4) for n, t in enumerate(times_s)]
    played_s = [t for t in times_s if t >= 0]
    file = written(bench, [note(t, t + 0.2) for t in played_s], beats=beats)
    assert onsets_s(file) == pytest.approx(played_s, abs=0.03)


@pytest.mark.parametrize("slow_s", [0.75, 1.0, 1.5])
def test_slower_beats_of_a_midi_file_are_no_gaps(bench: Tab, slow_s: float) -> None:
    times_s = [*(0.5 * np.arange(16)), *(7.5 + slow_s * np.arange(1, 17))]
    beats = [beat(t, n, 4) for n, t in enumerate(times_s)]
    file = written(bench, [note(t, t + 0.2) for t in times_s], beats=beats)
    midi = pretty_midi.PrettyMIDI(io.BytesIO(file))
    assert [(c.numerator, c.denominator) for c in midi.time_signature_changes] == [(4, 4)]
    assert midi.get_downbeats() == pytest.approx(times_s[::4], abs=0.03)


@pytest.mark.parametrize("subdivision", [2, 3])
@pytest.mark.parametrize(("size", "first"), [(4, 0), (4, 1), (3, 1), (4, 2), (4, 3)])
def test_pickups_survive_midi_files(bench: Tab, size: int, first: int, subdivision: int) -> None:
    beats = [beat(0.5 * n, n - first, size, subdivision) for n in range(24)]
    notes = [note(0.5 * n, 0.5 * n + 0.2) for n in range(24)]
    kept = opened(bench, written(bench, notes, beats=beats))["beats"]
    assert [(b["place"], b["beats_per_bar"]) for b in kept[:20]] == [
        (b["place"], b["beats_per_bar"]) for b in beats[:20]
    ]


@pytest.mark.parametrize(
    ("metre", "period_s", "beats_per_bar"), [((3, 8), 0.25, 3), ((2, 2), 0.5, 4), ((6, 8), 0.75, 2)]
)
def test_beats_of_opened_midi_files(
    bench: Tab, metre: tuple[int, int], period_s: float, beats_per_bar: int
) -> None:
    midi = pretty_midi.PrettyMIDI(initial_tempo=120)
    midi.time_signature_changes.append(pretty_midi.TimeSignature(*metre, 0))
    part = pretty_midi.Instrument(0)
    part.notes = [pretty_midi.Note(80, 60, n / 4, n / 4 + 0.2) for n in range(24)]
    midi.instruments.append(part)
    midi.write(file := io.BytesIO())
    beats = opened(bench, file.getvalue())["beats"]
    assert [b["time_s"] for b in beats[:5]] == pytest.approx(period_s * np.arange(5))
    assert {b["beats_per_bar"] for b in beats} == {beats_per_bar}


SPLIT_AND_LOUDER = """async (notes) => {
  const { split, applied, louder } = await import('./edit/commands.js');
  const edited = applied(notes, split(notes.slice(0, 1), 1));
  return applied(edited, louder(edited.slice(0, 1), 20));
}"""


def test_edited_notes_keep_their_bends_in_midi_files(bench: Tab) -> None:
    """The page writes the channels, bends and pedal that the service writes."""
    curve = [40 * np.sin(frame / 9) for frame in range(86)]
    programs = {"piano": 0, "violin": 40}
    notes = [
        BentNote(60, 0.5, 1.5, tuple(curve), "violin"),
        BentNote(64, 0.6, 1.5, None, "piano"),
        BentNote(57, 0.7, 1.2, (-20.0,) * 30, "violin"),
        *(BentNote(70 + n % 5, 2 + n / 10, 2.3 + n / 10, (3.0 * n,), "violin") for n in range(40)),
        *(BentNote(40 + n, 8 + n / 10, 12 + n / 10, (2.0 * n,), "violin") for n in range(20)),
    ]
    rows = [
        note(bent.onset_s, bent.offset_s, bent.instrument, bent.pitch)
        | {"velocity": bent.velocity}
        | {"bends": [(bent.onset_s + n * FRAME_S, c) for n, c in enumerate(bent.bends or ())]}
        for bent in notes
    ]
    pedal = [{"onset": 0.2, "offset": 1.0}, {"onset": 1.3, "offset": 3.0}]
    file = written(bench, rows, programs=programs, pedal=pedal)
    changes = [(p[end], end == "onset") for p in pedal for end in ("onset", "offset")]
    expected = synthesise(midi_file(notes, changes, programs))
    for found, sounded in zip(synthesise(file), expected, strict=True):
        assert found[:3] == pytest.approx(sounded[:3], abs=0.002)
        cents = [[cents for _, cents in bends] for bends in (found[3], sounded[3])]
        assert cents[0] == pytest.approx(cents[1], abs=1.2)
    messages = list(mido.merge_tracks(mido.MidiFile(file=io.BytesIO(file)).tracks))
    sustained = {m.channel for m in messages if m.is_cc(64) and m.value}
    assert sustained == {m.channel for m in messages if m.type == "note_on" and m.note == 64}
    # Both halves of a note that was split have their part of its bends.
    edited = written(bench, bench.run(SPLIT_AND_LOUDER, rows), programs=programs, pedal=pedal)
    first, second = (sounded for sounded in synthesise(edited) if sounded[0] == 60)
    assert (first[2], second[1]) == pytest.approx((1.0, 1.0), abs=0.002)
    for time_s, bend in [*first[3], *second[3]]:
        assert bend == pytest.approx(np.interp((time_s - 0.5) / FRAME_S, range(86), curve), abs=6)
    assert min(len(first[3]), len(second[3])) > 20


@pytest.mark.parametrize(("late_s", "metres"), [(0, {3}), (0.013, set())])
def test_midi_beats_are_kept_if_notes_match(bench: Tab, late_s: float, metres: set[int]) -> None:
    beats = [beat(n / 2, n, 3) for n in range(24)]
    notes = [note(n / 2 + late_s * n, n / 2 + 0.5) for n in range(24)]
    kept = opened(bench, written(bench, notes, beats=beats))["beats"]
    assert {b["beats_per_bar"] for b in kept} == metres


def test_long_and_accented_track_names_survive_midi(bench: Tab) -> None:
    names = ["Flöte – rechts", "Second flute " * 20]
    file = written(bench, [note(n, n + 1, name) for n, name in enumerate(names)])
    found = [note["instrument"] for note in opened(bench, file)["notes"]]
    assert found == [name.strip() for name in names]


def test_pedal_of_unknown_tracks_is_saved_again(bench: Tab) -> None:
    file = mido.MidiFile()
    for name in ("Right hand", "Left hand", "Violin"):
        track = file.add_track(name)
        track.append(mido.Message("control_change", control=64, value=127 * (name != "Violin")))
        add_note(track, 60)
    saved = mido.MidiFile(file=io.BytesIO(written(bench, **opened(bench, file))))
    pedals = {track.name: any(m.is_cc(64) for m in track) for track in saved.tracks[1:]}
    assert pedals == {"Right hand": True, "Left hand": True, "violin": False}


def add_note(track: mido.MidiTrack, pitch: int, channel: int = 0) -> None:
    """Add a note of 0.5 s."""
    track.append(mido.Message("note_on", note=pitch, channel=channel))
    track.append(mido.Message("note_off", note=pitch, channel=channel, time=480))


def test_programs_of_a_single_track_are_parts(bench: Tab) -> None:
    file = mido.MidiFile(type=0)
    track = file.add_track("Song")
    for channel, program in ((1, 25), (2, 40), (3, 40), (9, 0)):
        track.append(mido.Message("program_change", channel=channel, program=program))
    for pitch, channel in ((60, 0), (40, 1), (80, 2), (81, 3), (35, 9)):
        add_note(track, pitch, channel)
    take = opened(bench, file)
    names = {note["pitch"]: note["instrument"] for note in take["notes"]}
    assert names == {60: "piano", 40: "plucked", 80: "violin", 81: "violin"}
    assert take["programs"] == {"piano": 0, "plucked": 25, "violin": 40}


def test_tracks_with_equal_names_are_parts(bench: Tab) -> None:
    """The hands of a piano are one part."""
    file = mido.MidiFile()
    tracks = "Violin 40, Violin 40, Violin 40, Piano 40, Piano 40, Klavier 0, Klavier 0, 40"
    for channel, text in enumerate(tracks.split(", ")):
        *name, program = text.split()
        track = file.add_track("".join(name))
        track.append(mido.Message("program_change", channel=channel, program=int(program)))
        add_note(track, 60 + channel, channel)
    names = {note["pitch"]: note["instrument"] for note in opened(bench, file)["notes"]}
    violins = ["violin", "violin 2", "violin 3"]
    pianos = ["piano", "piano", "Klavier", "Klavier"]
    assert [names[60 + channel] for channel in range(8)] == [*violins, *pianos, "violin 4"]


def test_pedal_that_is_down_at_the_end_of_a_midi_file_is_kept(bench: Tab) -> None:
    file = mido.MidiFile()
    track = file.add_track()
    track.append(mido.Message("control_change", control=64, value=127))
    add_note(track, 60)
    assert opened(bench, file)["pedal"] == [{"onset": 0, "offset": 0.5}]


def test_pedal_of_several_tracks_is_merged(bench: Tab) -> None:
    file = mido.MidiFile()
    for times in ((0, 480, 960, 480), (240, 480, 0, 240)):  # ticks between changes of the pedal
        track = file.add_track()
        for value, time in zip((127, 0, 127, 0), times, strict=True):
            track.append(mido.Message("control_change", control=64, value=value, time=time))
        add_note(track, 60)
    pedal = opened(bench, file)["pedal"]
    presses = [(0, 0.75), (0.75, 1.0), (1.5, 2.0)]
    assert [(press["onset"], press["offset"]) for press in pedal] == presses
