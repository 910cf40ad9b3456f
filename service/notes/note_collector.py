"""Completed notes of a performance, and MIDI files of them."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from model.instruments import PROGRAMS
from service.notes.events import BendEvent, Event, Note, NoteEvent, PedalEvent, PedalPress
from service.notes.parts import settle_instruments
from service.protocol import midi_file as files

_LATE_S = 2.0  # maximum by which a note_off may come after a later one


@dataclass(slots=True)
class CollectorState:
    """State of a collector without the sounding notes."""

    notes: list[Note] = field(default_factory=list)
    pedal: list[PedalPress] = field(default_factory=list)
    pressed: PedalEvent | None = None
    bends: dict[int, tuple[float, ...]] = field(default_factory=dict)  # by ID of a sounding note

    def add(self, later: CollectorState) -> None:
        self.notes += later.notes
        self.pedal += later.pedal
        self.pressed, self.bends = later.pressed, later.bends


class NoteCollector:
    """Pairs the events of a performance into notes and pedal presses."""

    def __init__(self, started: int = 0, sounding: Iterable[NoteEvent] = ()) -> None:
        """Args:
        started: number of notes that started before this collector was created.
        sounding: note_on of each of them that has not ended.
        """
        self._sounding = {event.note_id: event for event in sounding}
        self._kept = CollectorState()
        self._ended_before = started - len(self._sounding)
        self._taken = 0, 0  # notes and presses that ``take_new_notes`` has returned

    def add(self, events: Iterable[Event]) -> None:
        """Add events in order. A note_off must follow its note_on."""
        kept = self._kept
        for event in events:
            if isinstance(event, PedalEvent):
                if kept.pressed is not None and not event.down:
                    kept.pedal.append(PedalPress(kept.pressed.time_s, event.time_s))
                kept.pressed = event if event.down else None
            elif isinstance(event, BendEvent):
                kept.bends[event.note_id] = kept.bends.get(event.note_id, ()) + event.cents
            elif event.kind == "note_off":
                on, bends = self._sounding.pop(event.note_id), kept.bends.pop(event.note_id, None)
                if bends is not None:  # a batch may reach beyond the end
                    bends = bends[: event.frame - on.frame]
                times = on.frame, event.frame, on.time_s, event.time_s
                named = on.instrument, on.instrument_probability
                note = Note(on.note_id, on.pitch, on.velocity, on.confidence, *times, *named, bends)
                kept.notes.append(note)
            else:
                self._sounding[event.note_id] = replace(event, kind="note_on")

    def take_new_notes(self) -> CollectorState:
        """Return what has been completed since the last call."""
        kept, (notes, pedal) = self._kept, self._taken
        self._taken = len(kept.notes), len(kept.pedal)
        return CollectorState(
            kept.notes[notes:], kept.pedal[pedal:], kept.pressed, dict(kept.bends)
        )

    def restore(self, kept: CollectorState) -> None:
        """Restore the state of an earlier collector of this performance."""
        self._kept = replace(kept, notes=[*kept.notes], pedal=[*kept.pedal], bends={**kept.bends})
        self._ended_before -= len(kept.notes)
        self._taken = len(kept.notes), len(kept.pedal)

    @property
    def started_count(self) -> int:
        return self._ended_before + self.completed_count + len(self._sounding)

    @property
    def completed_count(self) -> int:
        return len(self._kept.notes)

    @property
    def sounding(self) -> tuple[NoteEvent, ...]:
        """The note_on of each sounding note, with its latest instrument."""
        return tuple(self._sounding.values())

    @property
    def notes(self) -> list[Note]:
        """Completed notes, sorted by onset time, then pitch."""
        return sorted(self._kept.notes, key=lambda note: (note.onset_s, note.pitch))

    @property
    def pedal(self) -> list[PedalPress]:
        return self._kept.pedal

    def sounding_since(self, time_s: float) -> NDArray[np.float64]:
        """Return the notes that sound at a time or later, [notes, 4]: onset and offset in seconds
        (infinite for sounding notes), pitch and velocity."""
        rows = [(on.time_s, math.inf, on.pitch, on.velocity) for on in self._sounding.values()]
        for note in reversed(self._kept.notes):
            if note.offset_s < time_s - _LATE_S:
                break
            rows.append((note.onset_s, note.offset_s, note.pitch, note.velocity))
        return np.array(rows, float).reshape(-1, 4)

    def settle_instruments(self) -> None:
        """Settle the instruments of a complete recording (``service.notes.parts``)."""
        self._kept.notes = settle_instruments(self._kept.notes)

    def midi(self, tempo: files.Tempo = files.DEFAULT_TEMPO) -> bytes:
        return midi_file(self._kept.notes, self.pedal, tempo)


def midi_file(
    notes: Iterable[Note],
    pedal: Iterable[PedalPress] = (),
    tempo: files.Tempo = files.DEFAULT_TEMPO,
) -> bytes:
    """Return a Standard MIDI File with a track for each instrument, ordered by class number."""
    moves = [move for press in pedal for move in ((press.onset_s, True), (press.offset_s, False))]
    return files.midi_file(list(notes), moves, PROGRAMS, tempo)
