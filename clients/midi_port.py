"""Live notes to a MIDI port: another program or an instrument plays what is heard."""

from __future__ import annotations

import importlib
from typing import Any

from clients.protocol import NoteOff, NoteOn

VIRTUAL = "virtual"
VIRTUAL_NAME = "rse-transcribe"
ALL_NOTES_OFF = 123  # controller number


class MidiPortError(Exception):
    """No MIDI on this computer, or no such port."""


def open_port(name: str) -> Any:
    """Open an output port by a part of its name, or a new one with the name ``virtual``.

    Raises:
        MidiPortError: python-rtmidi is missing, the system has no MIDI, or no port fits.
    """
    try:
        backend = importlib.import_module("mido").Backend("mido.backends.rtmidi", load=True)
    except ImportError:
        raise MidiPortError(
            "python-rtmidi is missing: pip install mido python-rtmidi "
            "(Python 3.13 builds it: a C++ compiler and libasound2-dev are needed)"
        ) from None
    try:
        if name == VIRTUAL:
            return backend.open_output(VIRTUAL_NAME, virtual=True)
        names = backend.get_output_names()
        fitting = [port for port in names if port == name] or [
            port for port in names if name.lower() in port.lower()
        ]
        if not fitting:
            there = ", ".join(names) or "none"
            raise MidiPortError(f"no MIDI output like {name!r}; there are: {there}")
        return backend.open_output(fitting[0])
    # What rtmidi raises where there is no ALSA sequencer or no virtual port: kinds of OSError.
    except (OSError, RuntimeError, ValueError, NotImplementedError) as error:
        raise MidiPortError(f"MIDI port {name}: {error}") from None


class MidiOut:
    """Sends events to a port. ``close`` ends every sounding note, whatever happened before.

    Args:
        port: a mido output port, or one like it: ``send(message)`` and ``close()``.
    """

    def __init__(self, port: Any) -> None:
        self._port = port
        self._message = importlib.import_module("mido").Message
        # A pitch may sound in two notes at once; a port knows pitches only.
        self._sounding: dict[int, int] = {}  # note_id -> pitch

    def event(self, event: object) -> None:
        if isinstance(event, NoteOn):
            self._sounding[event.note_id] = event.pitch
            self._port.send(
                self._message(
                    "note_on", note=event.pitch, velocity=max(1, min(127, event.velocity))
                )
            )
        elif isinstance(event, NoteOff):
            pitch = self._sounding.pop(event.note_id, None)
            if pitch is not None and pitch not in self._sounding.values():
                self._port.send(self._message("note_off", note=pitch))

    def close(self) -> None:
        try:
            for pitch in set(self._sounding.values()):
                self._port.send(self._message("note_off", note=pitch))
            self._sounding.clear()
            self._port.send(self._message("control_change", control=ALL_NOTES_OFF, value=0))
        finally:
            self._port.close()
