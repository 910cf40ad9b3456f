"""The notes of a session that sound now, so that each is ended once, however the session ends."""

from __future__ import annotations

from collections.abc import Container

from clients.events import SessionEvent
from service.protocol.server_messages import NoteOff, NoteOn, NoteUpdate, Progress


class Sounding:
    """Follows the events of a performance.

    Attributes:
        frame: the latest frame of any event.
        time_s: its time, in seconds of the audio sent.
    """

    def __init__(self) -> None:
        self.frame = 0
        self.time_s = 0.0
        self._notes: dict[int, NoteOn] = {}

    def follow(self, event: SessionEvent) -> bool:
        """Process an event; returns False if it concerns a note that does not sound."""
        match event:
            case NoteOn():
                self._notes[event.note_id] = event
                self._reach(event.frame, event.time_s)
            case NoteOff():
                if self._notes.pop(event.note_id, None) is None:
                    return False
                self._reach(event.frame, event.time_s)
            case NoteUpdate():
                return event.note_id in self._notes
            case Progress():
                self._reach(event.frames, event.time_s)
        return True

    @property
    def notes(self) -> list[NoteOn]:
        """Notes that sound."""
        return list(self._notes.values())

    def keep(self, note_ids: Container[int]) -> list[NoteOff]:
        """End all notes except these, at the latest known time."""
        ending = [note for note in self._notes.values() if note.note_id not in note_ids]
        for note in ending:
            del self._notes[note.note_id]
        return [self.off(note.note_id, note.pitch) for note in ending]

    def off(self, note_id: int, pitch: int) -> NoteOff:
        """End a note, at the latest known time."""
        return NoteOff(note_id=note_id, pitch=pitch, frame=self.frame, time_s=self.time_s)

    def _reach(self, frame: int, time_s: float) -> None:
        self.frame = max(self.frame, frame)
        self.time_s = max(self.time_s, time_s)
