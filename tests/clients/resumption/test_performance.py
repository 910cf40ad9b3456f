"""A performance over several sessions: notes and samples in one count, where the next begins."""

from __future__ import annotations

import io

import mido
import pytest

from clients.connection.backlog import Backlog
from clients.errors import TranscriptionError
from clients.events import Connected, Event, Gap
from clients.midi.notes import NoteList
from clients.resumption.outlet import Outlet
from clients.resumption.performance import Performance
from service.protocol.client_messages import Checkpoint, Start
from service.protocol.options import Encoding, Mode
from service.protocol.server_messages import Done, Limits, NoteOff, NoteOn, Progress, Ready, Totals

RATE = 8_000
OPTIONS = Start(encoding=Encoding.PCM_S16LE, sample_rate=RATE)


def checkpoint(from_sample: int = 0, frames: int = 0) -> Checkpoint:
    return Checkpoint(session_id="0a", from_sample=from_sample, frames=frames, notes=0, sounding=())


def ready() -> Ready:
    return Ready(
        session_id="ab",
        model="live",
        sample_rate_hz=8_000,
        hop_samples=80,
        frame_rate_hz=100,
        mode=Mode.BLOCK,
        lookahead_ms=92.88,
        block_frames=4,
        delay_ms=150,
        note_off_delay_ms=160,
        replay_ms=1_000,
        checkpoint=checkpoint(),
        limits=Limits(
            max_message_bytes=65_536, max_session_s=3_600, idle_timeout_s=30, max_buffered_ms=2_000
        ),
    )


def progress(from_sample: int, frames: int) -> Progress:
    return Progress(
        received_samples=80 * frames,
        frames=frames,
        time_s=frames / 100,
        behind_ms=0,
        checkpoint=checkpoint(from_sample, frames),
    )


def note(note_id: int, frame: int) -> tuple[NoteOn, NoteOff]:
    on = NoteOn(
        note_id=note_id, pitch=60, velocity=80, confidence=0.9, frame=frame, time_s=frame / 100
    )
    return on, NoteOff(note_id=note_id, pitch=60, frame=frame + 10, time_s=(frame + 10) / 100)


@pytest.fixture
def audio() -> Backlog:
    return Backlog(OPTIONS.frame_bytes, 2 * RATE)


@pytest.fixture
def outlet() -> Outlet:
    return Outlet(1_000, 1.0, lambda: None)


@pytest.fixture
def performance(audio: Backlog, outlet: Outlet) -> Performance:
    return Performance(OPTIONS, audio, outlet)


def put(audio: Backlog, seconds: float) -> None:
    for _ in range(round(10 * seconds)):
        audio.put(bytes(RATE // 10 * OPTIONS.frame_bytes))


def test_the_next_session_asks_for_what_the_first_came_to_be(performance: Performance) -> None:
    assert performance.options == OPTIONS
    assert performance.resume() is None
    performance.hear(ready())
    wanted = performance.options
    assert (wanted.mode, wanted.lookahead_ms, wanted.block_frames) == ("block", 92.88, 4)
    assert (wanted.model, wanted.sample_rate) == ("live", RATE)


def test_a_session_goes_on_from_the_last_checkpoint(
    performance: Performance, audio: Backlog
) -> None:
    put(audio, 1)
    performance.hear(ready())
    performance.hear(note(0, 20)[0])
    performance.hear(progress(1_600, 50))
    performance.hear(note(0, 20)[1])
    assert performance.resumable
    assert (performance.needed, performance.decided) == (1_600, 4_000)
    resume = performance.resume()
    assert resume is not None
    assert (resume.from_sample, resume.known_events) == (1_600, 1)
    assert audio.start == 1_600  # what no session will need is forgotten


def test_displaced_audio_is_told_as_a_gap_and_the_count_goes_on(
    performance: Performance, audio: Backlog, outlet: Outlet
) -> None:
    put(audio, 1)
    performance.hear(ready())
    performance.hear(note(0, 20)[0])
    performance.hear(progress(0, 50))
    put(audio, 2)  # more than is kept: the first second is displaced
    assert performance.resume() is None
    assert performance.notes.sounding == []
    performance.hear(ready())
    for event in note(0, 20):
        performance.hear(event)
    events: list[Event] = list(outlet.events)
    gap = Gap(lost_samples=RATE - 4_000, time_s=1.0)
    assert [event for event in events if isinstance(event, Gap)] == [gap]
    assert [event.resumed for event in events if isinstance(event, Connected)] == [False, False]
    begun = [event for event in events if isinstance(event, NoteOn)]
    assert [(on.note_id, on.time_s) for on in begun] == [(0, 0.2), (1, 1.2)]
    assert (performance.sessions, performance.lost_samples) == (2, RATE - 4_000)


def test_the_end_is_that_of_all_sessions(performance: Performance, audio: Backlog) -> None:
    put(audio, 1)
    performance.hear(ready())
    for event in note(0, 20):
        performance.hear(event)
    nothing = NoteList().midi()
    done = Done(
        reason="stop",
        totals=Totals(notes=0, frames=0, audio_s=0, received_samples=0, dropped_samples=0),
        midi_base64="",
    )
    assert performance.whole(done) is done  # one session has said it all
    performance.end_part()
    performance.hear(ready())
    whole = performance.whole(done)
    assert (whole.totals.notes, whole.totals.received_samples) == (1, RATE)
    assert whole.midi != nothing
    struck = [m for m in mido.MidiFile(file=io.BytesIO(whole.midi)) if m.type == "note_on"]
    assert [m.note for m in struck if m.velocity] == [60]
    failure = performance.failed(TranscriptionError("broken", done=done))
    assert failure.done == whole
