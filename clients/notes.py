"""Events gathered into notes, as JSON values or as a MIDI file."""

from __future__ import annotations

import io
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from clients.protocol import NoteOff, NoteOn

# As the service writes its files, so that the same notes give the same bytes.
TICKS_PER_BEAT = 5_000
TEMPO_US_PER_BEAT = 500_000  # 120 beats a minute: the audio's own tempo is not known
TICKS_PER_S = TICKS_PER_BEAT * 1_000_000 // TEMPO_US_PER_BEAT
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

    def midi(self) -> bytes:
        """The notes that have ended as a Standard MIDI File of one track.

        Raises:
            ImportError: mido is not installed.
        """
        import mido

        # At one time, ends come before beginnings: a re-struck note is not cut off.
        moments: list[tuple[int, int, int, int]] = []
        for note in self.notes:
            if note.offset_s is not None:
                onset = round(note.onset_s * TICKS_PER_S)
                offset = max(onset + 1, round(note.offset_s * TICKS_PER_S))
                moments.append((onset, 1, note.pitch, note.velocity))
                moments.append((offset, 0, note.pitch, OFF_VELOCITY))
        track = mido.MidiTrack([mido.MetaMessage("set_tempo", tempo=TEMPO_US_PER_BEAT)])
        now = 0
        for tick, begins, pitch, velocity in sorted(moments):
            kind = "note_on" if begins else "note_off"
            track.append(mido.Message(kind, note=pitch, velocity=velocity, time=tick - now))
            now = tick
        file = io.BytesIO()
        mido.MidiFile(type=0, tracks=[track], ticks_per_beat=TICKS_PER_BEAT).save(file=file)
        return file.getvalue()

    def save_midi(self, path: Path) -> None:
        """Write ``midi`` to a file; raises OSError where it cannot be written."""
        path.write_bytes(self.midi())
