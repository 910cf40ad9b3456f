"""Lateness against a microphone's pace, and the greatest pace, on a clock of their own."""

from functools import partial

import pytest

from service.live import websocket
from service.live.pacing import ArrivalClock, Pacer
from service.live.receiver import Receiver
from tests.fakes import Clock
from tests.service.apps import ADDRESS, START, hear, of_type, serving, transcribe


def test_a_stream_that_comes_fast_is_late_only_once_its_time_is_over() -> None:
    clock = Clock()
    arrivals = ArrivalClock(clock)
    arrivals.arrived(10)
    assert arrivals.age_s(2) == 0
    clock.now_s += 9
    assert arrivals.age_s(2) == pytest.approx(1)


def test_a_recording_keeps_to_the_pace_after_its_burst_and_a_microphone_is_never_paused() -> None:
    clock = Clock()
    recording, microphone = (Pacer(max_pace=4, burst_s=2, clock=clock) for _ in range(2))
    began_s, sent_s = clock.now_s, 0.0
    while sent_s < 100:
        clock.now_s += recording.pause_s(0.5)
        sent_s += 0.5
    assert clock.now_s - began_s == pytest.approx((100 - 2) / 4)
    for _ in range(10_000):
        assert microphone.pause_s(0.02) == 0
        clock.now_s += 0.02


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Those that sessions are asked to make, while no time passes."""
    asked: list[float] = []

    async def pause(self: Receiver, seconds: float) -> None:
        asked.append(seconds)

    monkeypatch.setattr(Receiver, "pause", pause)
    monkeypatch.setattr(websocket, "Pacer", partial(Pacer, clock=Clock()))
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
