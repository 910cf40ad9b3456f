"""Session after session over one backlog: nothing lost, nothing told twice, nothing stuck."""

import asyncio
import itertools
from collections.abc import Callable, Iterator
from http import HTTPStatus

import pytest

from clients.backlog import Backlog
from clients.client import ConnectError, ServerError, TranscriptionError
from clients.live import delays_s, transcribe_live
from clients.protocol import Event, NoteOff, NoteOn, Ready, StartOptions
from tests.clients.fake_service import Behaviour, FakeService

RATE = 8_000
OPTIONS = StartOptions(encoding="pcm_s16le", sample_rate=RATE)


class Recorder:
    def __init__(self) -> None:
        self.events: list[Event] = []
        self.connections = 0
        self.losses: list[TranscriptionError] = []

    def connected(self, ready: Ready) -> None:
        self.connections += 1

    def disconnected(self, error: TranscriptionError, retry_s: float) -> None:
        self.losses.append(error)

    def event(self, event: Event) -> None:
        self.events.append(event)

    @property
    def ons(self) -> list[NoteOn]:
        return [event for event in self.events if isinstance(event, NoteOn)]

    @property
    def offs(self) -> list[NoteOff]:
        return [event for event in self.events if isinstance(event, NoteOff)]


def at_once() -> Iterator[float]:
    return itertools.repeat(0.0)


async def until(holds: Callable[[], bool], running: asyncio.Task[None]) -> None:
    while not holds():
        assert not running.done(), running.exception()
        await asyncio.sleep(0.001)


def full_backlog(seconds: float) -> Backlog:
    backlog = Backlog(2, 1_000_000)
    for _ in range(round(seconds * 10)):
        backlog.put(bytes(2 * RATE // 10))
    backlog.finish()
    return backlog


async def test_one_session_where_all_goes_well() -> None:
    recorder = Recorder()
    async with FakeService().running() as service:
        await transcribe_live(full_backlog(3), service.url, OPTIONS, recorder)
    assert recorder.connections == 1
    assert [event.time_s for event in recorder.ons] == [0.25, 1.25, 2.25]
    assert sorted(e.note_id for e in recorder.ons) == sorted(e.note_id for e in recorder.offs)


async def test_a_lost_connection_is_taken_up_where_the_notes_ended() -> None:
    recorder = Recorder()
    behaviour = Behaviour(drop_at_samples=round(2.6 * RATE), drops=2)
    async with FakeService(behaviour).running() as service:
        await transcribe_live(full_backlog(7), service.url, OPTIONS, recorder, delays=at_once)
        sessions = service.sessions
    assert recorder.connections == len(sessions) == 3
    assert len(recorder.losses) == 2
    assert all(error.retryable for error in recorder.losses)
    # No stuck note, and note numbers are the take's own.
    assert [event.note_id for event in recorder.ons] == list(range(len(recorder.ons)))
    assert sorted(e.note_id for e in recorder.offs) == [e.note_id for e in recorder.ons]
    # The fake hears one note a second of each session: told onsets never go back in time.
    onsets = [event.time_s for event in recorder.ons]
    assert onsets == sorted(set(onsets))
    # The last session ran to the end of the audio, from where the notes ended less the context.
    assert sessions[-1].stopped
    last_begin_s = 7 - sessions[-1].samples / RATE
    told_before_s = max(t for t in onsets if t <= last_begin_s + 0.75 + 0.5)
    assert last_begin_s <= told_before_s


async def test_a_refusal_that_will_not_change_ends_it() -> None:
    recorder = Recorder()
    async with FakeService(Behaviour(reject_start="bad_start")).running() as service:
        with pytest.raises(ServerError, match="cannot start so"):
            await transcribe_live(full_backlog(1), service.url, OPTIONS, recorder, delays=at_once)
        assert len(service.sessions) == 1


async def test_a_busy_service_is_asked_again() -> None:
    recorder = Recorder()
    behaviour = Behaviour(refuse_with=HTTPStatus.SERVICE_UNAVAILABLE)
    backlog = Backlog(2, 1_000_000)
    backlog.put(bytes(2 * RATE))
    async with FakeService(behaviour).running() as service:
        running = asyncio.create_task(
            transcribe_live(
                backlog, service.url, OPTIONS, recorder, delays=lambda: itertools.repeat(0.001)
            )
        )
        await until(lambda: len(recorder.losses) >= 2, running)
        behaviour.refuse_with = None
        await until(lambda: recorder.connections > 0, running)
        backlog.finish()
        await running
    assert all(isinstance(error, ConnectError) for error in recorder.losses)
    assert len(recorder.ons) == 1


async def test_the_end_of_the_audio_is_not_waited_out_without_a_connection() -> None:
    async with FakeService().running() as service:
        url = service.url
    with pytest.raises(ConnectError):
        await transcribe_live(
            full_backlog(1), url, OPTIONS, Recorder(), delays=lambda: itertools.repeat(3600.0)
        )


async def test_a_draining_service_is_left_for_its_successor() -> None:
    recorder = Recorder()
    behaviour = Behaviour(drain_at_samples=2 * RATE)
    async with FakeService(behaviour).running() as service:
        backlog = full_backlog(4)
        running = asyncio.create_task(
            transcribe_live(backlog, service.url, OPTIONS, recorder, delays=at_once)
        )
        await until(lambda: len(recorder.losses) > 0, running)
        behaviour.drain_at_samples = None
        await running
    assert recorder.connections >= 2
    assert sorted(e.note_id for e in recorder.offs) == [e.note_id for e in recorder.ons]


def test_delays_grow_to_a_limit_and_differ() -> None:
    first = list(itertools.islice(delays_s(), 10))
    assert first[0] < 1 < first[3]
    assert max(first) <= 15 * 1.25
    assert first != list(itertools.islice(delays_s(), 10))
