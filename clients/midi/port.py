"""Live notes to a MIDI port, for another program or an instrument to play."""

import contextlib
from collections.abc import Mapping
from typing import Any

import mido

from clients.events import Connected
from service.protocol.midi_file import CHANNELS, PEDALLED, SUSTAIN
from service.protocol.mpe import MASTER, MEMBERS, bend, setup
from service.protocol.server_messages import NoteBend, NoteOff, NoteOn, Pedal

VIRTUAL = "virtual"
VIRTUAL_NAME = "rse-transcribe"
# mido's names: the computer's own MIDI (ALSA, CoreMIDI, Windows MM), then JACK.
SYSTEMS = ("mido.backends.rtmidi", "mido.backends.rtmidi/UNIX_JACK")
ALL_NOTES_OFF = 123  # controller number


class MidiPortError(Exception):
    """No MIDI on this computer, or no such port."""


def open_port(name: str) -> Any:
    """Open an output port by a part of its name, or a new one with the name ``virtual``.

    Raises:
        MidiPortError: python-rtmidi is missing, MIDI is unavailable, or no port matches.
    """
    there: list[str] = []
    complaints: list[str] = []
    for system in SYSTEMS:
        try:
            backend = mido.Backend(system, load=True)
            if name == VIRTUAL:
                return backend.open_output(VIRTUAL_NAME, virtual=True)
            names = backend.get_output_names()
            there += names
            fitting = [port for port in names if port == name] or [
                port for port in names if name.lower() in port.lower()
            ]
            if fitting:
                return backend.open_output(fitting[0])
        except ImportError:
            raise MidiPortError(
                "python-rtmidi is missing: pip install mido python-rtmidi "
                "(Python 3.13 builds it: a C++ compiler and libasound2-dev are needed)"
            ) from None
        # What rtmidi raises if the system does not run, has no virtual ports, or is not built
        # in; its own kinds are kinds of OSError.
        except (OSError, RuntimeError, ValueError, NotImplementedError) as error:
            complaints.append(str(error))
    if name != VIRTUAL and len(complaints) < len(SYSTEMS):
        known = ", ".join(there) or "none"
        complaints.append(f"no MIDI output like {name!r}; there are: {known}")
    raise MidiPortError(f"MIDI port {name}: {'; '.join(complaints)}")


class MidiOut:
    """Sends events to a port, on a channel for each instrument in the order in which they are first
    heard; from the 16th on they share. ``close`` ends every sounding note.

    Args:
        port: a mido output port, or one like it: ``send(message)`` and ``close()``.
    """

    def __init__(self, port: Any) -> None:
        self._port = port
        # A pitch may sound in two notes at once; a port knows channels and pitches only.
        self._sounding: dict[int, tuple[int, int]] = {}  # note_id -> channel, pitch
        self._programs: Mapping[str, int] = {}
        self._channels: dict[str | None, int] = {}  # by instrument, if it is known
        self._pedal_down = False

    def event(self, event: object) -> None:
        """Send an event to the port; events other than notes and the pedal are ignored."""
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
                self._pedal_down = event.down
                for channel in self._pedalled:
                    self._send("control_change", channel, control=SUSTAIN, value=127 * event.down)

    def _channel(self, instrument: str | None) -> int:
        """Its channel, set up for it."""
        channel = self._channels.get(instrument)
        if channel is None:
            channel = CHANNELS[len(self._channels) % len(CHANNELS)]
            self._channels[instrument] = channel
            if instrument is not None:
                program = self._programs.get(instrument, 0)
                self._send("program_change", channel, program=program)
            if self._pedal_down and channel in self._pedalled:
                self._send("control_change", channel, control=SUSTAIN, value=127)
        return channel

    @property
    def _pedalled(self) -> list[int]:
        """Channels with a pedal: of notes without a name too, as they may be a piano's."""
        return [
            channel
            for instrument, channel in self._channels.items()
            if instrument is None or instrument in PEDALLED
        ]

    def _send(self, kind: str, channel: int, **values: int) -> None:
        self._port.send(mido.Message(kind, channel=channel, **values))

    def silence(self) -> None:
        """End what sounds."""
        for channel, pitch in self._sounding.values():
            self._send("note_off", channel, note=pitch)
        self._sounding.clear()
        if self._pedal_down:
            self.event(Pedal(down=False, frame=0, time_s=0.0))

    def close(self) -> None:
        """End all notes and close the port, whatever it says to that."""
        with contextlib.closing(self._port):
            self.silence()
            for channel in sorted({CHANNELS[0], *self._channels.values()}):
                self._send("control_change", channel, control=ALL_NOTES_OFF, value=0)


class MpeOut(MidiOut):
    """Sends pitch bends too, each note on a channel of its own (MPE)."""

    def __init__(self, port: Any) -> None:
        super().__init__(port)
        self._members = list(MEMBERS)  # the longest unused first
        self._players: dict[int, str | None] = {}  # by channel
        for message in setup():
            port.send(message)

    def event(self, event: object) -> None:
        if isinstance(event, NoteBend) and event.note_id in self._sounding:
            channel, _ = self._sounding[event.note_id]
            self._port.send(bend(channel, event.cents[-1]))
        super().event(event)

    def _channel(self, instrument: str | None) -> int:
        used = [channel for channel, _ in self._sounding.values()]
        channel = min(self._members, key=used.count)
        self._members.remove(channel)
        self._members.append(channel)
        if self._players.get(channel) != instrument:
            self._players[channel] = instrument
            program = self._programs.get(instrument or "", 0)
            self._send("program_change", channel, program=program)
        self._port.send(bend(channel, 0.0))
        return channel

    @property
    def _pedalled(self) -> list[int]:
        return [MASTER]
