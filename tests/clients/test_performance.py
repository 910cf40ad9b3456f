"""Performances over connections that break: nothing lost, nothing reported twice, nothing stuck."""

import asyncio
from http import HTTPStatus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clients import client as client_module
from clients.client import MAX_ATTEMPTS_WITHOUT_PROGRESS, TranscriptionClient
from clients.events import (
    ConnectError,
    ConnectionLostError,
    Disconnected,
    Event,
    Gap,
    ServerError,
)
from clients.performance import AudioBuffer
from service.protocol.server_messages import Done, NoteOff, NoteOn, Pedal
from tests.clients.fake_service import Behaviour, FakeService, nobody
from tests.clients.test_client import OPTIONS, RATE, assert_no_stuck_note, collect, seconds


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "FIRST_DELAY_S", 0.0)


async def perform(
    behaviour: Behaviour, duration_s: float
) -> tuple[FakeService, TranscriptionClient, list[Event], Done]:
    """A whole performance that must come to its end."""
    async with FakeService(behaviour).running() as service:
        async with TranscriptionClient(service.url, OPTIONS) as client:
            reading = asyncio.create_task(collect(client))
            for _ in range(round(duration_s * 10)):
                await client.send(seconds(0.1))
            done = await client.stop()
            events, failure = await reading
    assert failure is None
    return service, client, events, done


def notes_of(events: list[Event]) -> list[NoteOn | NoteOff]:
    return [event for event in events if isinstance(event, NoteOn | NoteOff)]


@pytest.mark.parametrize(("cut_s", "drops"), [(0.3, 1), (1.3, 3), (2.6, 1)])
async def test_a_lost_connection_changes_no_note(cut_s: float, drops: int) -> None:
    _, whole, expected, _ = await perform(Behaviour(), 5)
    behaviour = Behaviour(drop_at_samples=round(cut_s * RATE), drops=drops)
    service, client, events, done = await perform(behaviour, 5)
    assert notes_of(events) == notes_of(expected)
    assert done.midi == client.notes.midi()
    assert done.totals.received_samples == 5 * RATE
    assert client.notes.notes == whole.notes.notes
    assert len(service.sessions) == client.performance.sessions == drops + 1
    assert all("resume" in session.start for session in service.sessions[1:])
    # Nearly nothing is sent twice: only what the service needs to hear again or had not received.
    assert all(session.first_sample >= (cut_s - 2.5) * RATE for session in service.sessions[1:])
    assert client.performance.lost_samples == 0
    accepted = {"model": "fake", "mode": "block", "lookahead_ms": 100.0, "block_frames": 4}
    assert accepted.items() <= service.sessions[1].start.items()


async def test_a_note_that_a_checkpoint_no_longer_knows_is_ended() -> None:
    behaviour = Behaviour(
        forget_ends=True, drop_at_samples=round(1.6 * RATE), drops=1, reject_resume="bad_resume"
    )
    _, client, events, _ = await perform(behaviour, 4.6)
    assert client.performance.sessions == 2  # the notes of the second count from 0
    assert_no_stuck_note(events)
    ends = [(event.note_id, event.time_s) for event in events if isinstance(event, NoteOff)]
    # Each at the next progress, but the second and the last at the end of their session.
    assert ends == [(0, 1.5), (1, 1.5), (2, 3.0), (3, 4.0), (4, 4.0)]


async def test_a_draining_service_is_left_for_its_successor() -> None:
    _, _, expected, _ = await perform(Behaviour(), 4)
    service, client, events, _ = await perform(Behaviour(drain_at_samples=round(2.4 * RATE)), 4)
    assert len(service.sessions) == 2
    assert notes_of(events) == notes_of(expected)  # what ended the old session is not heard
    (lost,) = [event for event in events if isinstance(event, Disconnected)]
    assert "shutting down" in str(lost.error)


def pedal_of(events: list[Event]) -> list[bool]:
    return [event.down for event in events if isinstance(event, Pedal)]


@pytest.mark.parametrize("code", ["bad_resume", "unknown_model"])
async def test_a_point_that_is_refused_ends_what_sounds_and_goes_on(code: str) -> None:
    behaviour = Behaviour(
        pedal=True, drop_at_samples=round(1.4 * RATE), drops=1, reject_resume=code
    )
    service, client, events, _ = await perform(behaviour, 4)
    assert len(service.sessions) == 3
    assert service.sessions[2].start == service.sessions[0].start
    assert_no_stuck_note(events)
    assert pedal_of(events) == [True, False, True, False]
    assert client.performance.lost_samples == 0
    assert [event for event in events if isinstance(event, Gap)] == []


async def test_displaced_audio_is_reported_as_a_gap_and_times_stay_right(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(client_module, "MAX_BUFFERED_S", 3.0)
    behaviour = Behaviour(drop_at_samples=round(2.4 * RATE), drops=1)
    async with FakeService(behaviour).running() as service:
        client = TranscriptionClient(service.url, OPTIONS, give_up_s=None)
        client.start()
        client.put(seconds(2.4))
        events: list[Event] = []
        async for event in client:
            events.append(event)
            if isinstance(event, Disconnected) and client.sent_samples < 12 * RATE:
                behaviour.refuse_with = HTTPStatus.SERVICE_UNAVAILABLE
                for _ in range(100):  # ten seconds without a service
                    client.put(seconds(0.1))
            elif isinstance(event, Disconnected):
                behaviour.refuse_with = None
            elif isinstance(event, Gap):
                client.finish()
    (gap,) = [event for event in events if isinstance(event, Gap)]
    assert gap.lost_samples == client.performance.lost_samples
    assert gap.time_s == pytest.approx(9.4)  # the last three seconds of 12.4 were kept
    assert "resume" not in service.sessions[-1].start
    assert service.sessions[-1].samples == 3 * RATE
    assert_no_stuck_note(events)
    ons = [event for event in events if isinstance(event, NoteOn)]
    assert [on.note_id for on in ons] == list(range(len(ons)))
    after = [on.time_s for on in ons if on.time_s > gap.time_s]
    assert after == pytest.approx([9.65, 10.65, 11.65])


async def test_a_service_that_keeps_failing_at_the_same_place_is_given_up() -> None:
    behaviour = Behaviour(fail_at_samples=round(1.4 * RATE), fail_retryable=True)
    async with FakeService(behaviour).running() as service:
        async with TranscriptionClient(service.url, OPTIONS) as client:
            await client.send(seconds(2))
            events, failure = await collect(client)
    assert isinstance(failure, ServerError)
    assert client.notes.sounding == []
    assert (
        MAX_ATTEMPTS_WITHOUT_PROGRESS <= len(service.sessions) <= MAX_ATTEMPTS_WITHOUT_PROGRESS + 2
    )
    assert_no_stuck_note(events)


async def test_the_end_of_the_audio_is_not_waited_out_without_a_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("FIRST_DELAY_S", "MAX_DELAY_S"):
        monkeypatch.setattr(client_module, name, 3600.0)
    with nobody() as url:
        client = TranscriptionClient(url, OPTIONS, give_up_s=None)
        client.start()
        client.put(seconds(1))
        with pytest.raises(ConnectError, match="cannot connect"):
            await client.stop()


def numbered(start: int, count: int) -> bytes:
    return b"".join((start + i).to_bytes(2, "little") for i in range(count))


@given(
    sizes=st.lists(st.integers(0, 40), max_size=30),
    first=st.integers(0, 100),
    most=st.integers(1, 50),
    max_samples=st.integers(1, 1_000),
)
def test_audio_is_read_once_and_in_order_or_known_to_be_dropped(
    sizes: list[int], first: int, most: int, max_samples: int
) -> None:
    async def run() -> None:
        backlog = AudioBuffer(2, max_samples)
        for size in sizes:
            backlog.put(numbered(backlog.end, size))
            assert backlog.end - backlog.start <= max_samples
        backlog.finish()
        assert backlog.end == sum(sizes)
        backlog.position = position = min(first, backlog.end)
        if position < min(backlog.start, backlog.end):
            with pytest.raises(ConnectionLostError, match="dropped"):
                await backlog.read(most)
            backlog.position = position = backlog.start
        heard = b""
        while (pcm := await backlog.read(most)) is not None:
            assert len(pcm) <= 2 * most
            heard += pcm
        assert heard == numbered(position, sum(sizes) - position)

    asyncio.run(run())
