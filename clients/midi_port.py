"""Live notes to a MIDI port: another program or an instrument plays what is heard."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Sequence
from typing import Any

from service.protocol.server_messages import NoteOff, NoteOn

VIRTUAL = "virtual"
VIRTUAL_NAME = "rse-transcribe"
# The computer's own MIDI (ALSA, CoreMIDI, Windows MM), then JACK.
SYSTEMS = ("mido.backends.rtmidi", "mido.backends.rtmidi/UNIX_JACK")
ALL_NOTES_OFF = 123  # controller number


class MidiPortError(Exception):
    """No MIDI on this computer, or no such port."""


def open_port(name: str, systems: Sequence[str] = SYSTEMS) -> Any:
    """Open an output port by a part of its name, or a new one with the name ``virtual``.

    Args:
        systems: mido's names of where to look for it, in this order.

    Raises:
        MidiPortError: python-rtmidi is missing, there is no MIDI here, or no port fits.
    """
    there: list[str] = []
    complaints: list[str] = []
    for system in systems:
        try:
            backend = importlib.import_module("mido").Backend(system, load=True)
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
        # What rtmidi raises where the system does not run, has no virtual ports, or is not built
        # in; its own kinds are kinds of OSError.
        except (OSError, RuntimeError, ValueError, NotImplementedError) as error:
            complaints.append(str(error))
    if name != VIRTUAL and len(complaints) < len(systems):
        known = ", ".join(there) or "none"
        complaints.append(f"no MIDI output like {name!r}; there are: {known}")
    raise MidiPortError(f"MIDI port {name}: {'; '.join(complaints)}")


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
        """End what sounds and give the port back.

        Raises what the port raises, but only after all has been tried.
        """
        silence = [self._message("note_off", note=pitch) for pitch in self._sounding.values()]
        silence.append(self._message("control_change", control=ALL_NOTES_OFF, value=0))
        self._sounding.clear()
        with contextlib.ExitStack() as stack:
            stack.callback(self._port.close)
            for message in reversed(silence):  # the stack calls them from the last to the first
                stack.callback(self._port.send, message)
