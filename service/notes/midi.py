"""A whole performance as a Standard MIDI File."""

from __future__ import annotations

import io
from collections.abc import Iterable

import mido

from service.notes.events import Note

TEMPO_US_PER_BEAT = 500_000  # 120 beats a minute
TICKS_PER_BEAT = 5_000  # 0.1 ms a tick: no time is off by more than 0.05 ms
_TICKS_PER_S = TICKS_PER_BEAT * 1_000_000 // TEMPO_US_PER_BEAT
_OFF_VELOCITY = 64  # the standard's value for "not measured"


def midi_file(notes: Iterable[Note]) -> bytes:
    """Type 0, one track, one channel, 120 beats a minute; the same notes give the same bytes.

    Every note lasts a tick at least, as readers drop those that do not.
    """
    track = mido.MidiTrack()
    track.append(mido.MetaMessage("set_tempo", tempo=TEMPO_US_PER_BEAT, time=0))
    now = 0
    for tick, _, pitch, velocity in sorted(_strokes(notes)):
        kind = "note_on" if velocity else "note_off"
        track.append(
            mido.Message(
                kind, note=pitch, velocity=velocity or _OFF_VELOCITY, channel=0, time=tick - now
            )
        )
        now = tick
    track.append(mido.MetaMessage("end_of_track", time=0))
    buffer = io.BytesIO()
    mido.MidiFile(type=0, ticks_per_beat=TICKS_PER_BEAT, tracks=[track]).save(file=buffer)
    return buffer.getvalue()


def _strokes(notes: Iterable[Note]) -> Iterable[tuple[int, int, int, int]]:
    """(tick, rank, pitch, velocity): an end goes before a beginning of the same tick, so that a
    note struck again does not end at once; velocity 0 stands for an end."""
    for note in notes:
        onset = round(note.onset_s * _TICKS_PER_S)
        offset = max(onset + 1, round(note.offset_s * _TICKS_PER_S))
        yield onset, 1, note.pitch, note.velocity
        yield offset, 0, note.pitch, 0
