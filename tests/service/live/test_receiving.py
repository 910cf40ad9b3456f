"""Tests of the receiver of websocket messages."""

import pytest

from service.live import session
from service.live.session import Message, Receiver
from service.server import OVERHEAD_BYTES, MessageQueue


async def test_pauses_do_not_count_as_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 0.0
    monkeypatch.setattr(session, "monotonic", lambda: now_s)

    async def receive() -> Message:
        return {"type": "websocket.receive", "text": "keepalive"}

    async def wait() -> None:
        nonlocal now_s
        assert (messages.idle_s, messages.without_audio_s) == (0, 0)
        now_s = 14.0

    messages = Receiver(receive)
    now_s = 1.0
    await messages.next()
    now_s = 4.0
    assert (messages.idle_s, messages.without_audio_s) == (3, 4)
    await messages.pause(wait())
    now_s = 15.0
    assert (messages.idle_s, messages.without_audio_s) == (1, 5)


def test_queue_measures_the_messages_that_wait() -> None:
    queue = MessageQueue()
    for number in range(3):
        queue.put_nowait({"type": "websocket.receive", "bytes": bytes(number)})
    queue.put_nowait({"type": "websocket.receive", "text": "keepalive"})
    assert queue.size == 4 * OVERHEAD_BYTES + 3 + 9
    for _ in range(4):
        queue.get_nowait()
    assert queue.size == 0
