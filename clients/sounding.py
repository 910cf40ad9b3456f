"""The notes of a session that sound now, so that each is ended once, however the session ends."""

from __future__ import annotations

from clients.protocol import Event, NoteOff, NoteOn, Progress


class Sounding:
    """Follows the events of one session.

    Attributes:
        frame: the last frame that an event has told of.
        time_s: its time, in seconds of the audio sent.
    """

    def __init__(self) -> None:
        self.frame = 0
        self.time_s = 0.0
        self._notes: dict[int, NoteOn] = {}

    def follow(self, event: Event) -> bool:
        """Take in an event; False for the end of a note that does not sound."""
        match event:
            case NoteOn():
                self._notes[event.note_id] = event
                self._reach(event.frame, event.time_s)
            case NoteOff():
                if self._notes.pop(event.note_id, None) is None:
                    return False
                self._reach(event.frame, event.time_s)
            case Progress():
                self._reach(event.frames, event.time_s)
        return True

    def silence(self) -> list[NoteOff]:
        """The end of every note that sounds, at the last time told of."""
        notes, self._notes = list(self._notes.values()), {}
        return [
            NoteOff(note_id=note.note_id, pitch=note.pitch, frame=self.frame, time_s=self.time_s)
            for note in notes
        ]

    def _reach(self, frame: int, time_s: float) -> None:
        self.frame = max(self.frame, frame)
        self.time_s = max(self.time_s, time_s)
