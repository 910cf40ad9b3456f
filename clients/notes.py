"""Events gathered into notes, as JSON values or as a MIDI file."""

from __future__ import annotations

import io
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from clients.beat import DEFAULT_BEAT, TICKS_PER_BEAT, Beat, TempoMap
from service.protocol.server_messages import NoteOff, NoteOn

OFF_VELOCITY = 64  # the standard's value for "not measured"


@dataclass(slots=True)
class Note:
    """One note; ``offset_s`` is None while it sounds."""

    note_id: int
    pitch: int
    velocity: int
    confidence: float
    onset_s: float
    onset_frame: int
    offset_s: float | None = None
    offset_frame: int | None = None


class NoteList:
    """Notes in the order of their beginnings."""

    def __init__(self) -> None:
        self.notes: list[Note] = []
        self._sounding: dict[int, Note] = {}

    @property
    def sounding(self) -> list[Note]:
        """Notes without an end so far."""
        return list(self._sounding.values())

    def event(self, event: object) -> None:
        """Take in an event; others than notes pass by."""
        if isinstance(event, NoteOn):
            note = Note(
                note_id=event.note_id,
                pitch=event.pitch,
                velocity=event.velocity,
                confidence=event.confidence,
                onset_s=event.time_s,
                onset_frame=event.frame,
            )
            self.notes.append(note)
            self._sounding[event.note_id] = note
        elif isinstance(event, NoteOff):
            ended = self._sounding.pop(event.note_id, None)
            if ended is not None:
                ended.offset_s = max(ended.onset_s, event.time_s)
                ended.offset_frame = event.frame

    def to_json(self) -> list[dict[str, Any]]:
        """The notes as plain values, fields as in the service's JSON answer."""
        return [asdict(note) for note in self.notes]

    def midi(self, beat: Beat = DEFAULT_BEAT) -> bytes:
        """The notes that have ended as a Standard MIDI File of one track.

        Args:
            beat: the file's; the notes' times are the same with any.

        Raises:
            ImportError: mido is not installed.
        """
        import mido

        tempo = TempoMap(beat)
        # At one tick, ends come before beginnings: a re-struck note is not cut off.
        moments = [
            (tick, 0, mido.MetaMessage("set_tempo", tempo=us_per_beat))
            for tick, us_per_beat in tempo.changes
        ]
        for note in self.notes:
            if note.offset_s is not None:
                onset = tempo.tick(note.onset_s)
                offset = max(onset + 1, tempo.tick(note.offset_s))
                on = mido.Message("note_on", note=note.pitch, velocity=note.velocity)
                off = mido.Message("note_off", note=note.pitch, velocity=OFF_VELOCITY)
                moments += [(onset, 2, on), (offset, 1, off)]
        track = mido.MidiTrack()
        now = 0
        for tick, _, message in sorted(moments, key=_order):
            track.append(message.copy(time=tick - now))
            now = tick
        file = io.BytesIO()
        mido.MidiFile(type=0, tracks=[track], ticks_per_beat=TICKS_PER_BEAT).save(file=file)
        return file.getvalue()

    def save_midi(self, path: Path, beat: Beat = DEFAULT_BEAT) -> None:
        """Write ``midi`` to a file; raises OSError where it cannot be written."""
        path.write_bytes(self.midi(beat))


def _order(moment: tuple[int, int, Any]) -> tuple[int, int, int, int]:
    """The same notes give the same bytes, in whatever order they came."""
    tick, rank, message = moment
    return tick, rank, getattr(message, "note", 0), getattr(message, "velocity", 0)
