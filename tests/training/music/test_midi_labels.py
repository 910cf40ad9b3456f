"""Notes of MIDI files: strikes, ends, pedals on any track and channel."""

from functools import partial
from pathlib import Path

import mido
import pytest

from model.config import INSTRUMENTS
from training.music.label_files import LabelError, read_midi

Said = tuple[float, mido.Message]  # seconds
DOWN, UP = 127, 0


def note(onset_s: float, offset_s: float, pitch: int, channel: int = 0) -> list[Said]:
    return [
        (onset_s, mido.Message("note_on", note=pitch, velocity=70, channel=channel)),
        (offset_s, mido.Message("note_off", note=pitch, channel=channel)),
    ]


def pedal(time_s: float, value: int, channel: int = 0) -> list[Said]:
    change = mido.Message("control_change", control=64, value=value, channel=channel)
    return [(time_s, change)]


def write(path: Path, *tracks: list[Said], tempo: int = 500_000) -> Path:
    file = mido.MidiFile(type=1, ticks_per_beat=500)
    file.tracks.append(mido.MidiTrack([mido.MetaMessage("set_tempo", tempo=tempo)]))
    for said in tracks:
        now, track = 0, mido.MidiTrack()
        for time_s, message in sorted(said, key=lambda each: each[0]):
            tick = round(time_s * 500 * 1e6 / tempo)
            track.append(message.copy(time=tick - now))
            now = tick
        file.tracks.append(track)
    file.save(path)
    return path


def heard(path: Path) -> list[tuple[int, float, float]]:
    notes = read_midi(path)
    columns = notes.pitch, notes.onset_s, notes.offset_s
    return [
        (int(p), round(float(a), 3), round(float(b), 3)) for p, a, b in zip(*columns, strict=True)
    ]


@pytest.mark.parametrize("tempo", [500_000, 400_000])
def test_the_pedal_lengthens_notes_up_to_the_next_strike(tmp_path: Path, tempo: int) -> None:
    played = [
        *pedal(0.0, DOWN),
        *note(0.5, 0.75, 60),
        *note(1.0, 1.25, 62),
        *note(1.5, 2.5, 60),
        *pedal(2.0, UP),
    ]
    path = write(tmp_path / "a.mid", played, tempo=tempo)
    assert heard(path) == [(60, 0.5, 1.5), (62, 1.0, 2.0), (60, 1.5, 2.5)]


def test_a_pedal_in_a_track_of_its_own_holds_its_channel(tmp_path: Path) -> None:
    changes = [*pedal(0.0, DOWN, 3), *pedal(2.0, UP, 3)]
    path = write(tmp_path / "a.mid", [*note(0.5, 1.0, 60, 3), *note(0.5, 1.0, 70, 4)], changes)
    assert heard(path) == [(60, 0.5, 2.0), (70, 0.5, 1.0)]


def test_a_pedal_on_a_channel_without_notes_holds_those_without_a_pedal(tmp_path: Path) -> None:
    played = [
        *note(0.5, 1.0, 60, 0),
        *pedal(0.0, UP, 0),  # a reset, as programs send it to every channel
        *note(0.5, 1.0, 72, 1),
        *pedal(0.0, DOWN, 1),
        *pedal(1.5, UP, 1),
    ]
    path = write(tmp_path / "a.mid", played, [*pedal(0.0, DOWN, 2), *pedal(2.0, UP, 2)])
    assert heard(path) == [(60, 0.5, 2.0), (72, 0.5, 1.5)]


def test_a_pedal_that_is_never_lifted_holds_to_the_end(tmp_path: Path) -> None:
    played = [*pedal(0.0, DOWN), *note(0.5, 1.0, 60), *note(2.0, 3.0, 62)]
    assert heard(write(tmp_path / "a.mid", played)) == [(60, 0.5, 3.0), (62, 2.0, 3.0)]


def test_drums_are_no_notes(tmp_path: Path) -> None:
    path = write(tmp_path / "a.mid", [*note(0.0, 1.0, 36, 9), *note(0.5, 1.0, 60, 0)])
    assert heard(path) == [(60, 0.5, 1.0)]


def test_a_tempo_counts_from_where_it_stands(tmp_path: Path) -> None:
    file = mido.MidiFile(type=1, ticks_per_beat=100)
    tempo, note = partial(mido.MetaMessage, "set_tempo"), partial(mido.Message, "note_on", note=60)
    tempi = [tempo(tempo=1_000_000), tempo(tempo=250_000, time=200)]
    notes = [note(velocity=70, time=100), note(velocity=0, time=200)]
    file.tracks.extend([mido.MidiTrack(tempi), mido.MidiTrack(notes)])
    file.save(tmp_path / "a.mid")
    assert heard(tmp_path / "a.mid") == [(60, 1.0, 2.25)]


@pytest.mark.parametrize(
    "content",
    [b"no music", b"MThd\0\0\0\x06\0\0\0\0\0\0", b"MThd\0\0\0\x06\0\x01\0\x01\xe2\x50MTrk"],
)
def test_a_midi_file_that_is_none_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.mid"
    path.write_bytes(content)
    with pytest.raises(LabelError, match="a.mid"):
        read_midi(path)


def test_programs_are_instruments(tmp_path: Path) -> None:
    def program(number: int, channel: int) -> list[Said]:
        return [(0.0, mido.Message("program_change", program=number, channel=channel))]

    tracks = [
        [*program(40, 0), *note(0.5, 1.0, 60, 0)],
        [*program(48, 1), *note(1.5, 2.0, 62, 1)],  # a section
        note(2.5, 3.0, 64, 2),
    ]
    notes = read_midi(write(tmp_path / "a.mid", *tracks))
    assert notes.instrument.tolist() == [INSTRUMENTS.index("violin"), -1, -1]
