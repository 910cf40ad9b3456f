"""Events of the pipeline as messages."""

from service.notes.events import NoteEvent
from service.protocol.server_messages import NoteOff, NoteOn
from service.session.wire import event_message


def test_notes_become_messages() -> None:
    event = NoteEvent("note_on", 7, 60, 100, 0.123456, 43, 0.49922902494)
    assert event_message(event) == NoteOn(
        note_id=7, pitch=60, velocity=100, confidence=0.1235, frame=43, time_s=0.499229
    )
    end = NoteEvent("note_off", 7, 60, 100, 0.123456, 86, 0.998)
    assert event_message(end) == NoteOff(note_id=7, pitch=60, frame=86, time_s=0.998)
