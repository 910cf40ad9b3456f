"""Events gathered into notes, as JSON values or as a MIDI file."""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from clients.midi.beat import DEFAULT_BEAT, TICKS_PER_BEAT, Beat, TempoMap
from service.protocol.server_messages import NoteOff, NoteOn, NoteUpdate, Pedal

OFF_VELOCITY = 64  # the standard's value for "not measured"
SUSTAIN = 64  # controller number
PEDALLED = ("piano", "electric piano")
CHANNELS = tuple(channel for channel in range(16) if channel != 9)  # 9 is percussion's


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


class NoteList:
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
    def instruments(self) -> list[str]:
        """Those that play, by program."""
        names = {note.instrument for note in self.notes if note.instrument}
        return sorted(names, key=lambda name: (self.programs.get(name, 0), name))

    def event(self, event: object) -> None:
        """Process an event; events other than notes and the pedal are ignored."""
        match event:
            case NoteOn():
                note = Note(
                    note_id=event.note_id,
                    pitch=event.pitch,
                    velocity=event.velocity,
                    confidence=event.confidence,
                    onset_s=event.time_s,
                    onset_frame=event.frame,
                    instrument=event.instrument,
                    instrument_probability=event.instrument_probability,
                )
                self.notes.append(note)
                self._sounding[event.note_id] = note
            case NoteUpdate() if event.note_id in self._sounding:
                note = self._sounding[event.note_id]
                note.instrument = event.instrument
                note.instrument_probability = event.instrument_probability
            case NoteOff() if event.note_id in self._sounding:
                ended = self._sounding.pop(event.note_id)
                ended.offset_s = max(ended.onset_s, event.time_s)
                ended.offset_frame = event.frame
            case Pedal():
                self.pedal.append(event)

    def to_json(self) -> list[dict[str, Any]]:
        """The notes as plain values, fields as in the service's JSON answer."""
        told = (asdict(note) for note in self.notes)
        optional = ("instrument", "instrument_probability")
        return [
            {
                name: value
                for name, value in note.items()
                if value is not None or name not in optional
            }
            for note in told
        ]

    def midi(self, beat: Beat = DEFAULT_BEAT, only: str | None = None) -> bytes:
        """The notes that have ended as a Standard MIDI File.

        With instruments it is of type 1: a track of the tempo, and one for each instrument with its
        name, its program, a channel of its own, and the pedal where it has one. Without, of type 0.

        Args:
            beat: the file's; the notes' times are the same with any.
            only: an instrument; the others are left out.

        Raises:
            ImportError: mido is not installed.
        """
        import mido

        tempo = TempoMap(beat)
        names = [name for name in self.instruments if only in (None, name)]
        moments = [
            (tick, 0, mido.MetaMessage("set_tempo", tempo=us_per_beat))
            for tick, us_per_beat in tempo.changes
        ]
        if only is None:
            unnamed = [note for note in self.notes if note.instrument is None]
            moments += _strokes(unnamed, () if names else self.pedal, 0, tempo)
        tracks = [_track(moments)]
        for place, name in enumerate(names):
            channel = CHANNELS[place % len(CHANNELS)]
            own = [note for note in self.notes if note.instrument == name]
            track = _track(_strokes(own, self.pedal if name in PEDALLED else (), channel, tempo))
            program = self.programs.get(name, 0)
            track.insert(0, mido.Message("program_change", program=program, channel=channel))
            track.insert(0, mido.MetaMessage("track_name", name=name))
            tracks.append(track)
        file = io.BytesIO()
        kind = 1 if names else 0
        mido.MidiFile(type=kind, tracks=tracks, ticks_per_beat=TICKS_PER_BEAT).save(file=file)
        return file.getvalue()

    def save_midi(self, path: Path, beat: Beat = DEFAULT_BEAT, only: str | None = None) -> None:
        """Write ``midi`` to a file; raises OSError where it cannot be written."""
        path.write_bytes(self.midi(beat, only))


def _strokes(
    notes: Iterable[Note], pedal: Iterable[Pedal], channel: int, tempo: TempoMap
) -> list[tuple[int, int, Any]]:
    """What a track plays. At one tick the pedal comes first, and ends come before beginnings: a
    re-struck note is not cut off."""
    import mido

    moments = []
    for move in pedal:
        value = 127 if move.down else 0
        message = mido.Message("control_change", control=SUSTAIN, value=value, channel=channel)
        moments.append((tempo.tick(move.time_s), 1, message))
    for note in notes:
        if note.offset_s is not None:
            onset = tempo.tick(note.onset_s)
            offset = max(onset + 1, tempo.tick(note.offset_s))
            stroke = {"note": note.pitch, "channel": channel}
            on = mido.Message("note_on", velocity=note.velocity, **stroke)
            off = mido.Message("note_off", velocity=OFF_VELOCITY, **stroke)
            moments += [(onset, 3, on), (offset, 2, off)]
    return moments


def _track(moments: Iterable[tuple[int, int, Any]]) -> Any:
    import mido

    track = mido.MidiTrack()
    now = 0
    for tick, _, message in sorted(moments, key=_order):
        track.append(message.copy(time=tick - now))
        now = tick
    return track


def _order(moment: tuple[int, int, Any]) -> tuple[int, int, int, int]:
    """Sort key: the same notes give the same bytes, in any order of arrival."""
    tick, rank, message = moment
    return tick, rank, getattr(message, "note", 0), getattr(message, "velocity", 0)
