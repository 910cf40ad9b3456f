"""That every note of a session ends once."""

from clients.resumption.sounding import Sounding
from service.protocol.client_messages import Checkpoint
from service.protocol.server_messages import NoteOff, NoteOn, Progress


def on(note_id: int, time_s: float) -> NoteOn:
    frame = round(100 * time_s)
    return NoteOn(
        note_id=note_id, pitch=60 + note_id, velocity=80, confidence=0.9, frame=frame, time_s=time_s
    )


def off(note_id: int, time_s: float) -> NoteOff:
    return NoteOff(note_id=note_id, pitch=60 + note_id, frame=round(100 * time_s), time_s=time_s)


def progress(frames: int, time_s: float) -> Progress:
    nowhere = Checkpoint(session_id="0a", from_sample=0, frames=0, notes=0, sounding=())
    return Progress(
        received_samples=0, frames=frames, time_s=time_s, behind_ms=0.0, checkpoint=nowhere
    )


def test_time_does_not_run_backwards() -> None:
    """A note is sent after the frames that decided it."""
    sounding = Sounding()
    sounding.follow(progress(200, 2.0))
    sounding.follow(on(0, 1.9))
    assert sounding.keep(()) == [off(0, 2.0)]


def test_notes_that_the_service_does_not_know_of_are_ended() -> None:
    sounding = Sounding()
    sounding.follow(on(0, 0.5))
    sounding.follow(on(1, 1.0))
    assert sounding.keep({1, 7}) == [off(0, 1.0)]
    assert [note.note_id for note in sounding.notes] == [1]
