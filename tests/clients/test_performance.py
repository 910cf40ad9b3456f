"""Tests of performances over unreliable connections: no lost, duplicate or stuck notes."""

import asyncio
from contextlib import nullcontext
from http import HTTPStatus

import numpy as np
import pytest

from clients import client as client_module
from clients.client import MAX_ATTEMPTS_WITHOUT_PROGRESS, TranscriptionClient
from clients.events import ConnectError, Disconnected, Event, Gap, ServerError
from service.protocol.server_messages import Done, NoteOff, NoteOn, Pedal
from tests.clients.fake_service import FRAME_RATE_HZ, Behaviour, FakeService, unused_address
from tests.clients.test_client import OPTIONS, RATE, assert_no_stuck_note, collect, silence
from tests.service.apps import chunks


@pytest.fixture(autouse=True)
def _no_retry_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "FIRST_DELAY_S", 0.0)


def ramp(duration_s: float) -> bytes:
    """Return PCM with numbered samples."""
    return np.arange(round(duration_s * RATE)).astype("<u2").tobytes()


async def perform(
    behaviour: Behaviour, duration_s: float
) -> tuple[FakeService, TranscriptionClient, list[Event], Done]:
    """Run a performance that must succeed."""
    async with FakeService(behaviour).running() as service:
        async with TranscriptionClient(service.url, OPTIONS) as client:
            reading = asyncio.create_task(collect(client))
            for chunk in chunks(ramp(duration_s), RATE // 5):  # 0.1 s
                await client.send(chunk)
            done = await client.stop()
            events, failure = await reading
    assert failure is None
    return service, client, events, done


def notes_of(events: list[Event]) -> list[NoteOn | NoteOff]:
    return [event for event in events if isinstance(event, NoteOn | NoteOff)]


@pytest.mark.parametrize(
    ("cut_s", "drops", "interval_s"),
    # In the last performance, every second session makes progress.
    [(0.3, 1, 0), (1.3, 3, 0), (2.6, 1, 0), (0.6, 2 * MAX_ATTEMPTS_WITHOUT_PROGRESS + 2, 0.5)],
)
async def test_disconnections_change_no_notes(cut_s: float, drops: int, interval_s: float) -> None:
    duration_s = 5 + drops * interval_s
    _, uninterrupted, expected, _ = await perform(Behaviour(), duration_s)
    behaviour = Behaviour(
        drop_at_samples=round(cut_s * RATE), drops=drops, drop_interval=round(interval_s * RATE)
    )
    service, client, events, done = await perform(behaviour, duration_s)
    assert notes_of(events) == notes_of(expected)
    assert done.midi == client.notes.midi()
    assert done.totals.received_samples == duration_s * RATE
    assert client.notes.notes == uninterrupted.notes.notes
    assert len(service.sessions) == client.performance.sessions == drops + 1
    assert all("resume" in session.start for session in service.sessions[1:])
    for session in service.sessions:
        assert session.audio == ramp(duration_s)[2 * session.first_sample :][: len(session.audio)]
    # The client repeats only audio that the service needs again or has not received.
    assert all(session.first_sample >= (cut_s - 2.5) * RATE for session in service.sessions[1:])
    assert client.performance.lost_samples == 0
    accepted = {"model": "fake", "mode": "block", "lookahead_ms": 100.0, "block_frames": 4}
    assert accepted.items() <= service.sessions[1].start.items()


async def test_notes_missing_from_a_checkpoint_end() -> None:
    behaviour = Behaviour(
        omit_note_offs=True, drop_at_samples=round(1.6 * RATE), drops=1, reject_resume="bad_resume"
    )
    _, client, events, _ = await perform(behaviour, 4.6)
    assert client.performance.sessions == 2  # The second session numbers its notes from 0.
    assert_no_stuck_note(events)
    offsets = [(event.note_id, event.time_s) for event in events if isinstance(event, NoteOff)]
    # Notes 1 and 4 end with their sessions, and the others at the next progress.
    assert offsets == [(0, 1.5), (1, 1.5), (2, 3.0), (3, 4.0), (4, 4.0)]


async def test_the_client_reconnects_when_the_service_drains() -> None:
    _, _, expected, _ = await perform(Behaviour(), 4)
    service, client, events, _ = await perform(Behaviour(drain_at_samples=round(2.4 * RATE)), 4)
    assert len(service.sessions) == 2
    assert notes_of(events) == notes_of(expected)  # without the offsets that the drain caused
    (disconnected,) = [event for event in events if isinstance(event, Disconnected)]
    assert "shutting down" in str(disconnected.error)


@pytest.mark.parametrize("code", ["bad_resume", "unknown_model"])
async def test_a_rejected_resume_ends_notes_and_continues(code: str) -> None:
    behaviour = Behaviour(
        pedal=True, drop_at_samples=round(1.4 * RATE), drops=1, reject_resume=code
    )
    service, client, events, _ = await perform(behaviour, 4)
    assert len(service.sessions) == 3
    assert service.sessions[2].start == service.sessions[0].start
    assert_no_stuck_note(events)
    pedal = [event.down for event in events if isinstance(event, Pedal)]
    assert pedal == [True, False, True, False]
    assert client.performance.lost_samples == 0
    assert [event for event in events if isinstance(event, Gap)] == []


async def test_dropped_audio_is_reported_as_a_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "MAX_BUFFERED_S", 3.0)
    behaviour = Behaviour(drop_at_samples=round(2.4 * RATE), drops=1)
    async with FakeService(behaviour).running() as service:
        client = TranscriptionClient(service.url, OPTIONS, give_up_s=None)
        client.start()
        client.put(silence(2.4))
        events: list[Event] = []
        async for event in client:
            events.append(event)
            if isinstance(event, Disconnected) and client.sent_samples < 12 * RATE:
                behaviour.rejection_status = HTTPStatus.SERVICE_UNAVAILABLE
                for _ in range(100):  # 10 s without a service
                    client.put(silence(0.1))
            elif isinstance(event, Disconnected):
                behaviour.rejection_status = None
            elif isinstance(event, Gap):
                client.finish()
    (gap,) = [event for event in events if isinstance(event, Gap)]
    assert gap.lost_samples == client.performance.lost_samples
    assert gap.time_s == pytest.approx(9.4)  # The buffer holds the last 3 s of 12.4 s.
    assert "resume" not in service.sessions[-1].start
    assert service.sessions[-1].samples == 3 * RATE
    assert_no_stuck_note(events)
    ons = [event for event in events if isinstance(event, NoteOn)]
    assert [on.note_id for on in ons] == list(range(len(ons)))
    assert [on.frame for on in ons] == [round(on.time_s * FRAME_RATE_HZ) for on in ons]
    after = [on.time_s for on in ons if on.time_s > gap.time_s]
    assert after == pytest.approx([9.65, 10.65, 11.65])


@pytest.mark.parametrize("is_connected", [False, True])
async def test_done_includes_dropped_audio(
    monkeypatch: pytest.MonkeyPatch, is_connected: bool
) -> None:
    """The client drops audio before the first session, or because sending is too slow."""
    monkeypatch.setattr(client_module, "MAX_BUFFERED_S", 3.0)
    async with FakeService(Behaviour()).running() as service:
        client = TranscriptionClient(service.url, OPTIONS)
        if is_connected:
            await client.connect()
        client.put(silence(12))
        if not is_connected:
            client.start()
        done = await client.stop()
    assert client.performance.lost_samples == 9 * RATE
    assert done.totals.received_samples == 12 * RATE
    assert client.ready is not None
    assert done.totals.frames == pytest.approx(12 * client.ready.frame_rate_hz, abs=5)
    assert done.midi == client.notes.midi()


async def test_the_client_stops_retrying_without_progress() -> None:
    behaviour = Behaviour(fail_at_samples=round(1.4 * RATE), fail_retryable=True)
    async with FakeService(behaviour).running() as service:
        async with TranscriptionClient(service.url, OPTIONS) as client:
            await client.send(silence(2))
            events, failure = await collect(client)
    assert isinstance(failure, ServerError)
    assert client.notes.sounding == []
    assert (
        MAX_ATTEMPTS_WITHOUT_PROGRESS <= len(service.sessions) <= MAX_ATTEMPTS_WITHOUT_PROGRESS + 2
    )
    assert_no_stuck_note(events)


async def test_delays_between_attempts_double_up_to_a_maximum(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(client_module, "FIRST_DELAY_S", 0.001)
    monkeypatch.setattr(client_module, "MAX_DELAY_S", 0.008)
    with unused_address() as url:
        client = TranscriptionClient(url, OPTIONS, give_up_s=None)
        client.start()
        iterator = aiter(client)
        events = [await anext(iterator) for _ in range(6)]
        await client.close()
    delays_s = [event.retry_s for event in events if isinstance(event, Disconnected)]
    assert delays_s == pytest.approx([0.001, 0.002, 0.004, 0.008, 0.008, 0.008], rel=0.26)


@pytest.mark.parametrize("is_short", [False, True])
async def test_a_short_interruption_at_the_end_loses_no_notes(
    monkeypatch: pytest.MonkeyPatch, is_short: bool
) -> None:
    monkeypatch.setattr(client_module, "LAST_ATTEMPTS_S", 60.0 if is_short else 0.0)
    behaviour = Behaviour(drop_at_samples=round(2.4 * RATE), drops=1)
    async with FakeService(behaviour).running() as service:
        client = TranscriptionClient(service.url, OPTIONS, give_up_s=None)
        client.start()
        client.put(silence(4))
        interruptions = 0
        with nullcontext() if is_short else pytest.raises(ConnectError):
            async for event in client:
                if isinstance(event, Disconnected):
                    interruptions += 1
                    client.finish()
                    status = HTTPStatus.SERVICE_UNAVAILABLE if interruptions < 3 else None
                    behaviour.rejection_status = status
    assert interruptions == (3 if is_short else 1)
    assert (len(client.notes.notes) == 4) == is_short


async def test_stop_without_a_connection_does_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FIRST_DELAY_S", "MAX_DELAY_S"):
        monkeypatch.setattr(client_module, name, 3600.0)
    with unused_address() as url:
        client = TranscriptionClient(url, OPTIONS, give_up_s=None)
        client.start()
        client.put(silence(1))
        with pytest.raises(ConnectError, match="cannot connect.*; `rse-transcribe serve` starts a"):
            await client.stop()
