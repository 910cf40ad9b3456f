"""Converts received notes to MIDI: to a file at the end, or to a port as they arrive."""

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import mido

from clients.events import Connected
from service.protocol import midi_file as files
from service.protocol.server_messages import NoteBend, NoteOff, NoteOn, NoteUpdate, Pedal
from service.protocol.tempo import DEFAULT_TEMPO, Tempo

VIRTUAL = "virtual"
VIRTUAL_NAME = "rse-transcribe"
BACKEND = "mido.backends.rtmidi"  # ALSA, CoreMIDI, Windows MM


@dataclass(slots=True)
class Note:
    """A received note. ``offset_s`` is None while the note sounds."""

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
    """Deviation from ``pitch`` in cents, one value per frame from ``onset_frame`` on."""


class ReceivedNotes:
    """Collects notes, in the order of their ``NoteOn`` events, and pedal events."""

    def __init__(self) -> None:
        self._notes: dict[int, Note] = {}  # by note_id
        self.pedal: list[Pedal] = []
        self.programs: Mapping[str, int] = {}  # General MIDI program by instrument
        self._sounding: dict[int, Note] = {}

    @property
    def notes(self) -> list[Note]:
        return list(self._notes.values())

    @property
    def sounding(self) -> list[Note]:
        return list(self._sounding.values())

    @property
    def pedal_down(self) -> bool:
        return bool(self.pedal) and self.pedal[-1].down

    def handle(self, event: object) -> None:
        """Record a note or pedal event. Ignore other events."""
        match event:
            case NoteOn():
                fields = event.model_dump(exclude={"seq", "type", "time_s", "frame"})
                note = Note(onset_s=event.time_s, onset_frame=event.frame, **fields)
                self._notes[event.note_id] = self._sounding[event.note_id] = note
            case NoteUpdate() if event.note_id in self._notes:  # the note may have ended
                note = self._notes[event.note_id]
                note.instrument = event.instrument
                note.instrument_probability = event.instrument_probability
            case NoteBend() if event.note_id in self._sounding:
                note = self._sounding[event.note_id]
                note.bends = [*(note.bends or ()), *event.cents]
            case NoteOff() if event.note_id in self._sounding:
                ended = self._sounding.pop(event.note_id)
                ended.offset_s = max(ended.onset_s, event.time_s)
                ended.offset_frame = event.frame
                if ended.bends is not None:  # the last batch may extend beyond the offset
                    del ended.bends[max(0, event.frame - ended.onset_frame) :]
            case Pedal():
                self.pedal.append(event)

    def midi(self, tempo: Tempo = DEFAULT_TEMPO) -> bytes:
        """Return a Standard MIDI File of the completed notes (``service.protocol.midi_file``)."""
        pedal = [(event.time_s, event.down) for event in self.pedal]
        return files.midi_file(self.notes, pedal, self.programs, tempo)


class MidiPortError(Exception):
    """MIDI or python-rtmidi is not available, or the port does not exist."""


def open_port(name: str) -> Any:
    """Open the output port with this name, or with a name that contains it. If ``name`` is
    ``virtual``, create a port. Raises MidiPortError."""
    try:
        backend = mido.Backend(BACKEND, load=True)
        if name == VIRTUAL:
            return backend.open_output(VIRTUAL_NAME, virtual=True)
        names = backend.get_output_names()
        matches = [port for port in names if port == name]
        matches += [port for port in names if name.lower() in port.lower()]
        if matches:
            return backend.open_output(matches[0])
    except ImportError:
        raise MidiPortError(
            "python-rtmidi is missing: pip install mido python-rtmidi "
            "(for Python 3.13 also a C++ compiler and libasound2-dev)"
        ) from None
    # rtmidi raises these errors if the system's MIDI is not running or has no virtual ports.
    except (OSError, RuntimeError, ValueError, NotImplementedError) as error:
        raise MidiPortError(f"MIDI port {name}: {error}") from None
    available = ", ".join(names) or "none"
    raise MidiPortError(f"no MIDI output port matches {name!r}; available: {available}")


def _has_pedal(instrument: str | None) -> bool:
    """Return True if an instrument has a pedal or is unknown, because it may be a piano."""
    return instrument is None or instrument in files.PEDAL_INSTRUMENTS


class MidiOut:
    """Sends events to a mido output port. Each instrument gets a channel at its first note. If more
    than 15 instruments play, some share a channel."""

    def __init__(self, port: Any) -> None:
        self._port = port
        # Channel and pitch by note_id. MIDI cannot distinguish notes with equal channel and pitch.
        self._sounding: dict[int, tuple[int, int]] = {}
        self._programs: Mapping[str, int] = {}
        self._channels: dict[str | None, int] = {}  # by instrument; None: unknown
        self._pedal_down = False

    def handle(self, event: object) -> None:
        """Send a note or pedal event to the port. Ignore other events."""
        match event:
            case Connected():
                self._programs = event.ready.instruments or {}
            case NoteOn():
                channel = self._channel(event.instrument)
                self._sounding[event.note_id] = channel, event.pitch
                self._send("note_on", channel, note=event.pitch, velocity=event.velocity)
            case NoteOff():
                ended = self._sounding.pop(event.note_id, None)
                if ended is not None and ended not in self._sounding.values():
                    channel, pitch = ended
                    self._send("note_off", channel, note=pitch)
            case Pedal():
                self.pedal(event.down)

    def pedal(self, down: bool) -> None:
        """Press or release the pedal, unless it is already in this state."""
        if down != self._pedal_down:
            self._pedal_down = down
            for channel in self._pedalled:
                self._send("control_change", channel, control=files.SUSTAIN, value=127 * down)

    def _channel(self, instrument: str | None) -> int:
        """Return the channel of an instrument. Before its first note, set its program and pedal."""
        channel = self._channels.get(instrument)
        if channel is None:
            channel = files.CHANNELS[len(self._channels) % len(files.CHANNELS)]
            self._channels[instrument] = channel
            if instrument is not None:
                program = self._programs.get(instrument, 0)
                self._send("program_change", channel, program=program)
            if self._pedal_down and channel in self._pedalled:
                self._send("control_change", channel, control=files.SUSTAIN, value=127)
        return channel

    @property
    def _pedalled(self) -> list[int]:
        """Channels that receive the pedal."""
        return [channel for name, channel in self._channels.items() if _has_pedal(name)]

    def _send(self, kind: str, channel: int, **values: int) -> None:
        self._port.send(mido.Message(kind, channel=channel, **values))

    def silence(self) -> None:
        """End all sounding notes and release the pedal."""
        for channel, pitch in self._sounding.values():
            self._send("note_off", channel, note=pitch)
        self._sounding.clear()
        self.pedal(False)

    def close(self) -> None:
        """End all notes and close the port, even if ending the notes fails."""
        with contextlib.closing(self._port):
            self.silence()


class MpeOut(MidiOut):
    """Output that also sends pitch bends, with a separate channel for each note (MPE)."""

    def __init__(self, port: Any) -> None:
        super().__init__(port)
        self._members = list(files.MEMBERS)  # the least recently used channel first
        # Instrument of the latest note of each channel. None: unknown.
        self._instruments: dict[int, str | None] = dict.fromkeys(files.MEMBERS)
        for message in files.mpe_setup():
            port.send(message)

    def handle(self, event: object) -> None:
        if isinstance(event, NoteBend) and event.note_id in self._sounding:
            channel, _ = self._sounding[event.note_id]
            self._port.send(files.bend(channel, event.cents[-1]))
        super().handle(event)

    def _channel(self, instrument: str | None) -> int:
        used = [channel for channel, _ in self._sounding.values()]
        channel = min(self._members, key=used.count)
        self._members.remove(channel)
        self._members.append(channel)
        if self._instruments[channel] != instrument:
            before = set(self._pedalled)
            self._instruments[channel] = instrument
            if self._pedal_down:
                after = set(self._pedalled)
                for changed in sorted(after - before) + sorted(before - after):
                    pedal = 127 * (changed in after)
                    self._send("control_change", changed, control=files.SUSTAIN, value=pedal)
            program = self._programs.get(instrument or "", 0)
            self._send("program_change", channel, program=program)
        self._port.send(files.bend(channel, 0.0))
        return channel

    @property
    def _pedalled(self) -> list[int]:
        """The master channel, or the channels of instruments with a pedal if others play too."""
        channels = [channel for channel, name in self._instruments.items() if _has_pedal(name)]
        return [files.MASTER] if len(channels) == len(self._instruments) else channels
