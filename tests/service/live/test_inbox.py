"""The inbox of a session: the bounds that hold back the socket."""

import asyncio

import pytest

from service.live import websocket
from service.live.inbox import ArrivalClock, Inbox
from service.live.receiver import Receiver
from service.protocol.options import AudioFormat, Encoding
from tests.fakes import Clock
from tests.service.apps import ADDRESS, START, hear, of_type, serving, transcribe

AUDIO = AudioFormat(encoding=Encoding.PCM_S16LE, sample_rate_hz=8000)
TENTH = bytes(2 * 800)


async def waits(putting: asyncio.Task[None]) -> bool:
    for _ in range(5):
        await asyncio.sleep(0)
    return not putting.done()


async def test_audio_beyond_the_bound_waits_until_some_is_done_with() -> None:
    inbox = Inbox(AUDIO, 150, 16)
    await inbox.put(TENTH)
    await inbox.put(TENTH)  # 200 ms: one message is always let in
    third = asyncio.create_task(inbox.put(TENTH))
    assert await waits(third)
    await inbox.get()  # taken, but not yet transcribed: still 200 ms on this side of the socket
    assert await waits(third)
    await inbox.get()  # the first is done with
    assert not await waits(third)


async def test_the_number_of_messages_is_bounded_too() -> None:
    inbox = Inbox(AUDIO, 60_000, 16)
    for _ in range(16):
        await inbox.put(b"")
    extra = asyncio.create_task(inbox.put(b""))
    assert await waits(extra)
    await inbox.get()
    assert not await waits(extra)


def test_a_stream_that_comes_fast_is_late_only_once_its_time_is_over() -> None:
    clock = Clock()
    arrivals = ArrivalClock(clock)
    arrivals.arrived(10)
    assert arrivals.age_s(2) == 0
    clock.now_s += 9
    assert arrivals.age_s(2) == pytest.approx(1)


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Those that sessions are asked to make, while no time passes."""
    asked: list[float] = []

    async def pause(self: Receiver, seconds: float) -> None:
        asked.append(seconds)

    monkeypatch.setattr(Receiver, "pause", pause)
    monkeypatch.setattr(websocket, "monotonic", Clock())
    return asked


def test_a_recording_through_the_websocket_is_held_back_and_loses_nothing(
    pauses: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(websocket, "BURST_S", 0.2)
    with serving(max_pace=2) as (client, _):
        transcribe(client)
    assert pauses[0] == 0  # within the burst
    assert max(pauses) > 0


def test_messages_without_audio_have_a_pace_too(
    pauses: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(websocket, "BURST_MESSAGES", 3)
    with serving(max_messages_per_s=10) as (client, _):
        with client.websocket_connect(ADDRESS) as socket:
            socket.send_json(START)
            for kind in ("flush", "keepalive", "flush", "keepalive", "stop"):
                socket.send_json({"type": kind, "id": "a"} if kind == "flush" else {"type": kind})
            messages, _ = hear(socket)
    assert pauses == pytest.approx([0, 0, 0, 0.1, 0.2])
    assert len(of_type(messages, "flushed")) == 2
