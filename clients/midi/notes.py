"""Events gathered into notes, and a MIDI file of them."""

from collections.abc import Mapping
from dataclasses import dataclass

from service.protocol.midi_file import STEADY, Tempo, midi_file
from service.protocol.server_messages import NoteBend, NoteOff, NoteOn, NoteUpdate, Pedal


@dataclass(slots=True)
class Note:
    """One note; ``offset_s`` is None while it sounds, ``instrument`` if unknown."""

    note_id: int
    pitch: int
    velocity: int
    confidence: float
    onset_s: float
    onset_frame: int
    offset_s: float | None = None
    offset_frame: int | None = None
    instrument: str | None = None
    instrument_probability: float | None = None
    bends: list[float] | None = None
    """Cents above the pitch from ``onset_frame`` on, one per frame, if asked for."""


class ReceivedNotes:
    """Notes in the order of their beginnings.

    Attributes:
        notes: all of them.
        pedal: moves of the sustain pedal, in their order.
        programs: of General MIDI, by instrument, as the service states them.
    """

    def __init__(self) -> None:
        self.notes: list[Note] = []
        self.pedal: list[Pedal] = []
        self.programs: Mapping[str, int] = {}
        self._sounding: dict[int, Note] = {}

    @property
    def sounding(self) -> list[Note]:
        """Notes without an end so far."""
        return list(self._sounding.values())

    @property
    def pedal_down(self) -> bool:
        return bool(self.pedal) and self.pedal[-1].down

    def event(self, event: object) -> None:
        """Process an event; events other than notes and the pedal are ignored."""
        match event:
            case NoteOn():
                same = event.model_dump(exclude={"seq", "type", "time_s", "frame"})
                note = Note(onset_s=event.time_s, onset_frame=event.frame, **same)
                self.notes.append(note)
                self._sounding[event.note_id] = note
            case NoteUpdate() if event.note_id in self._sounding:
                note = self._sounding[event.note_id]
                note.instrument = event.instrument
                note.instrument_probability = event.instrument_probability
            case NoteBend() if event.note_id in self._sounding:
                note = self._sounding[event.note_id]
                note.bends = [*(note.bends or ()), *event.cents]
            case NoteOff() if event.note_id in self._sounding:
                ended = self._sounding.pop(event.note_id)
                ended.offset_s = max(ended.onset_s, event.time_s)
                ended.offset_frame = event.frame
                if ended.bends is not None:  # the last may reach beyond the end
                    del ended.bends[max(0, event.frame - ended.onset_frame) :]
            case Pedal():
                self.pedal.append(event)

    def midi(self, tempo: Tempo = STEADY) -> bytes:
        """The notes that have ended as a Standard MIDI File (``service.protocol.midi_file``)."""
        pedal = [(move.time_s, move.down) for move in self.pedal]
        return midi_file(self.notes, pedal, self.programs, tempo)
