"""The notes of a performance as they come to be known."""

from __future__ import annotations

from collections.abc import Iterable

from service.events import Note, NoteEvent
from service.midi import midi_file


class Score:
    """Pairs the events of a tracker into notes and keeps those that have ended."""

    def __init__(self) -> None:
        self._sounding: dict[int, NoteEvent] = {}  # by note_id
        self._ended: list[Note] = []

    def add(self, events: Iterable[NoteEvent]) -> None:
        """Take events in their order; a note_off must follow its note_on."""
        for event in events:
            if event.kind == "note_on":
                self._sounding[event.note_id] = event
            else:
                self._ended.append(Note.of(self._sounding.pop(event.note_id), event))

    @property
    def begun(self) -> int:
        """Notes that have begun, ended or not."""
        return len(self._sounding) + len(self._ended)

    @property
    def ended(self) -> int:
        """Notes that have ended."""
        return len(self._ended)

    @property
    def notes(self) -> list[Note]:
        """The notes that have ended, by onset time, then pitch."""
        return sorted(self._ended, key=lambda note: (note.onset_s, note.pitch))

    def midi(self) -> bytes:
        """The notes that have ended as a Standard MIDI File."""
        return midi_file(self._ended)
