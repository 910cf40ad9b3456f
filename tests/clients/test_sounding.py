"""That every note of a session ends once."""

from clients.protocol import Event, Lagging, NoteOff, NoteOn, Progress
from clients.sounding import Sounding


def on(note_id: int, time_s: float) -> NoteOn:
    frame = round(100 * time_s)
    return NoteOn(
        note_id=note_id, pitch=60 + note_id, velocity=80, confidence=0.9, frame=frame, time_s=time_s
    )


def off(note_id: int, time_s: float) -> NoteOff:
    return NoteOff(note_id=note_id, pitch=60 + note_id, frame=round(100 * time_s), time_s=time_s)


def test_what_still_sounds_ends_at_the_last_time_told_of() -> None:
    sounding = Sounding()
    told: list[Event] = [on(0, 0.5), on(1, 1.0), off(0, 1.5)]
    assert all(sounding.follow(event) for event in told)
    progress = Progress(received_samples=0, frames=250, time_s=2.5, behind_ms=0.0)
    assert sounding.follow(progress)
    assert sounding.follow(Lagging(behind_ms=1.0))
    assert sounding.silence() == [off(1, 2.5)]
    assert sounding.silence() == []


def test_an_end_without_its_beginning_is_told_apart_and_moves_no_time() -> None:
    sounding = Sounding()
    assert not sounding.follow(off(7, 9.0))
    sounding.follow(on(0, 1.0))
    assert sounding.follow(off(0, 1.25))
    assert not sounding.follow(off(0, 1.5))
    assert sounding.time_s == 1.25


def test_time_does_not_run_backwards() -> None:
    """A note is told of after the frames that decided it."""
    sounding = Sounding()
    sounding.follow(Progress(received_samples=0, frames=200, time_s=2.0, behind_ms=0.0))
    sounding.follow(on(0, 1.9))
    assert sounding.silence() == [off(0, 2.0)]
