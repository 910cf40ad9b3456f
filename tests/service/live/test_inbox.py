"""The inbox of a session: order, and the bounds that hold back the socket."""

from __future__ import annotations

import asyncio

from service.live.inbox import Inbox
from service.protocol.options import AudioFormat, Encoding

AUDIO = AudioFormat(encoding=Encoding.PCM_S16LE, sample_rate_hz=8000)
SECOND = bytes(2 * 8000)
TENTH = bytes(2 * 800)


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_one_message_is_always_let_in() -> None:
    inbox = Inbox(AUDIO, 100, 16)
    await asyncio.wait_for(inbox.put(SECOND), 60)
    assert inbox.queued_ms == 1000


async def test_audio_beyond_the_bound_waits_until_some_is_done_with() -> None:
    inbox = Inbox(AUDIO, 150, 16)
    await inbox.put(TENTH)
    await inbox.put(TENTH)  # 200 ms
    third = asyncio.create_task(inbox.put(TENTH))
    await settle()
    assert not third.done()
    await inbox.get()  # taken, but not yet transcribed: still 200 ms on this side of the socket
    await settle()
    assert not third.done()
    await inbox.get()  # the first is done with
    await settle()
    assert third.done()
    await third


async def test_the_number_of_messages_is_bounded_too() -> None:
    inbox = Inbox(AUDIO, 60_000, 16)
    for _ in range(16):
        await inbox.put(b"")
    extra = asyncio.create_task(inbox.put(b""))
    await settle()
    assert not extra.done()
    await inbox.get()
    await settle()
    assert extra.done()
    await extra
