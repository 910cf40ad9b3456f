"""Collects the completed notes of a performance, and converts them to a MIDI file."""

import math
from collections.abc import Iterable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from model.instruments import PROGRAMS
from service.notes.events import BendEvent, Event, Note, NoteEvent, PedalEvent, PedalPress
from service.notes.parts import settle_instruments
from service.protocol import midi_file as files
from service.protocol.tempo import DEFAULT_TEMPO, Tempo

_LATE_S = 2.0  # maximum time by which note_offs may be out of order


class NoteCollector:
    """Pairs the events of a performance into notes and pedal presses.

    If an earlier session reported the first bends of a note, its other bends are omitted.
    """

    def __init__(
        self,
        started: int = 0,
        sounding: Iterable[NoteEvent] = (),
        pressed: PedalEvent | None = None,
    ) -> None:
        """started: number of notes that started in earlier sessions. sounding: the note_on of each
        of these notes that has not ended. pressed: a press of the pedal that has not ended."""
        self._sounding = {event.note_id: event for event in sounding}
        self._ended_before = started - len(self._sounding)
        self._notes: dict[int, Note] = {}  # by ID
        self.pedal: list[PedalPress] = []
        self._pressed = pressed
        self._bends: dict[int, tuple[float, ...]] = {}  # by ID of a sounding note

    def add(self, events: Iterable[Event]) -> None:
        """Add events in order. A note_off must follow its note_on."""
        for event in events:
            if isinstance(event, PedalEvent):
                if self._pressed is not None and not event.down:
                    onset_s = self._pressed.time_s  # a resumed press starts at the resume
                    self.pedal.append(PedalPress(onset_s, max(onset_s, event.time_s)))
                self._pressed = event if event.down else None
            elif isinstance(event, BendEvent):
                known = self._bends.get(event.note_id, ())
                if event.frame == self._sounding[event.note_id].frame + len(known):
                    self._bends[event.note_id] = known + event.cents
            elif event.kind == "note_off":
                on, bends = self._sounding.pop(event.note_id), self._bends.pop(event.note_id, None)
                if bends is not None:  # a batch of bends may extend beyond the note's end
                    bends = bends[: event.frame - on.frame]
                times = on.frame, event.frame, on.time_s, event.time_s
                label = on.instrument, on.instrument_probability
                note = Note(on.note_id, on.pitch, on.velocity, on.confidence, *times, *label, bends)
                self._notes[note.note_id] = note
            elif (ended := self._notes.get(event.note_id)) is not None:  # a late note_update
                probability = event.instrument_probability
                self._notes[event.note_id] = replace(
                    ended, instrument=event.instrument, instrument_probability=probability
                )
            else:
                self._sounding[event.note_id] = replace(event, kind="note_on")

    @property
    def started_count(self) -> int:
        return self._ended_before + self.completed_count + len(self._sounding)

    @property
    def completed_count(self) -> int:
        return len(self._notes)

    @property
    def sounding(self) -> tuple[NoteEvent, ...]:
        """The note_on of each sounding note, with its latest instrument."""
        return tuple(self._sounding.values())

    @property
    def notes(self) -> list[Note]:
        """Completed notes, sorted by onset time, then pitch."""
        return sorted(self._notes.values(), key=lambda note: (note.onset_s, note.pitch))

    def sounding_since(self, time_s: float) -> NDArray[np.float64]:
        """Return the notes that end at ``time_s`` or later, and perhaps some that ended before:
        [notes, 4] onset and offset in seconds (infinite while a note sounds), pitch, velocity."""
        rows = [(on.time_s, math.inf, on.pitch, on.velocity) for on in self._sounding.values()]
        for note in reversed(self._notes.values()):
            if note.offset_s < time_s - _LATE_S:
                break
            rows.append((note.onset_s, note.offset_s, note.pitch, note.velocity))
        return np.array(rows, float).reshape(-1, 4)

    def settle_instruments(self) -> list[NoteEvent]:
        """Settle the instruments of a complete recording (``service.notes.parts``). Return a
        note_update for each note whose instrument changes."""
        before = list(self._notes.values())
        settled = zip(before, settle_instruments(before), strict=True)
        changed = [new for old, new in settled if new is not old]
        self._notes |= {note.note_id: note for note in changed}
        return [
            NoteEvent(
                "note_update",
                note.note_id,
                note.pitch,
                note.velocity,
                note.confidence,
                note.onset_frame,
                note.onset_s,
                note.instrument,
            )
            for note in changed
        ]


def midi_file(
    notes: Iterable[Note],
    pedal: Iterable[PedalPress] = (),
    tempo: Tempo = DEFAULT_TEMPO,
) -> bytes:
    """Return a Standard MIDI File with a track for each instrument, in the order of PROGRAMS."""
    changes: list[tuple[float, bool]] = []
    for press in pedal:
        changes += [(press.onset_s, True), (press.offset_s, False)]
    return files.midi_file(list(notes), changes, PROGRAMS, tempo)
