"""The inbox of a session: the bounds that hold back the socket."""

import asyncio

from service.live.inbox import Inbox
from service.protocol.options import AudioFormat, Encoding

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
