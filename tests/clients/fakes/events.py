"""Events of the service, as short as a test needs them."""

from typing import Any

from service.protocol.server_messages import NoteOff, NoteOn


def on(note_id: int, pitch: int, time_s: float = 0.0, **more: Any) -> NoteOn:
    usual = {"velocity": 80, "confidence": 0.5, "frame": int(time_s * 86)}
    return NoteOn(note_id=note_id, pitch=pitch, time_s=time_s, **{**usual, **more})


def off(note_id: int, pitch: int, time_s: float = 2.5) -> NoteOff:
    return NoteOff(note_id=note_id, pitch=pitch, frame=int(time_s * 86), time_s=time_s)
