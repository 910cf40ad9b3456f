"""Sessions with the workers of a pool, without a socket."""

import asyncio
import json
from typing import Any

from service.protocol.options import AudioFormat, Encoding, StreamOptions
from service.protocol.server_messages import Limits
from service.workers.connection import SessionProxy
from service.workers.messages import OpenSession

PATIENCE_S = 120.0
LIMITS = Limits(max_message_bytes=1, max_session_s=1, idle_timeout_s=1, max_buffered_ms=1)


def opening(rate_hz: int) -> OpenSession:
    """Return a session of mono 16-bit audio with default options."""
    return OpenSession(
        session_id="ab",
        audio=AudioFormat(encoding=Encoding.PCM_S16LE, sample_rate_hz=rate_hz),
        options=StreamOptions(),
        limits=LIMITS,
        updates=True,
    )


async def receive_all(session: SessionProxy, messages: list[dict[str, Any]]) -> None:
    """Append all messages up to the last, which are numbered without a gap."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            output = await session.next_output()
            messages += map(json.loads, output.messages)
            if output.final_state is not None:
                assert [message["seq"] for message in messages] == list(range(len(messages)))
                return


async def until(holds: Any) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not holds():
            await asyncio.sleep(0.001)


def events(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the messages that do not depend on time. ``seq``, which does, is 0."""
    kinds = ("note_on", "note_off", "note_update", "pedal", "beat", "done")
    return [{**one, "seq": 0} for one in messages if one["type"] in kinds]
