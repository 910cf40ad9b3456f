"""A whole performance as a Standard MIDI File."""

from __future__ import annotations

from collections.abc import Iterable

from model.instruments import PROGRAMS
from service.notes.events import Note, PedalPress
from service.protocol import midi_file as files


def midi_file(notes: Iterable[Note], pedal: Iterable[PedalPress] = ()) -> bytes:
    """At 120 BPM, with a track for each instrument, by class number."""
    moves = [move for press in pedal for move in ((press.onset_s, True), (press.offset_s, False))]
    return files.midi_file(list(notes), moves, PROGRAMS)
