"""The server's messages: what they make of notes and totals."""

import json

from service.notes.events import NoteEvent
from service.protocol.server_messages import Done, NoteOff, NoteOn, Totals, event_message


def test_notes_become_messages() -> None:
    event = NoteEvent("note_on", 7, 60, 100, 0.123456, 43, 0.49922902494)
    assert event_message(event) == NoteOn(
        note_id=7, pitch=60, velocity=100, confidence=0.1235, frame=43, time_s=0.499229
    )
    end = NoteEvent("note_off", 7, 60, 100, 0.123456, 86, 0.998)
    assert event_message(end) == NoteOff(note_id=7, pitch=60, frame=86, time_s=0.998)


def test_done_takes_the_session_totals() -> None:
    totals = Totals(notes=1, frames=2, audio_s=3.0, received_samples=4, dropped_samples=0)
    assert json.loads(Done(reason="stop", totals=totals, midi_base64="").model_dump_json()) == {
        "type": "done",
        "seq": 0,
        "reason": "stop",
        "totals": totals.model_dump(),
        "midi_base64": "",
    }
