"""The notes of a performance as they come to be known."""

from __future__ import annotations

from collections.abc import Iterable

from service.notes.events import Note, NoteEvent
from service.notes.midi import midi_file


class Score:
    """Pairs the events of a tracker into notes and keeps those that have ended."""

    def __init__(self, begun: int = 0, sounding: Iterable[NoteEvent] = ()) -> None:
        """Args:
        begun: notes that began before this score was opened.
        sounding: the note_on of those that have not ended.
        """
        self._sounding = {event.note_id: event for event in sounding}
        self._ended: list[Note] = []
        self._ended_before = begun - len(self._sounding)

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
        return self._ended_before + len(self._ended) + len(self._sounding)

    @property
    def sounding(self) -> tuple[NoteEvent, ...]:
        """The note_on of each note that has not ended."""
        return tuple(self._sounding.values())

    @property
    def ended(self) -> int:
        """Notes that have ended here."""
        return len(self._ended)

    @property
    def notes(self) -> list[Note]:
        """The notes that have ended, by onset time, then pitch."""
        return sorted(self._ended, key=lambda note: (note.onset_s, note.pitch))

    def midi(self) -> bytes:
        """The notes that have ended as a Standard MIDI File."""
        return midi_file(self._ended)
