"""Sessions with the workers of a pool, without a socket."""

import asyncio
import json
from typing import Any

from service.protocol.options import AudioFormat, Encoding, StreamOptions
from service.protocol.server_messages import Limits
from service.workers.link import Relay
from service.workers.messages import Known, Open

PATIENCE_S = 120.0
LIMITS = Limits(max_message_bytes=1, max_session_s=1, idle_timeout_s=1, max_buffered_ms=1)


def opening(
    rate_hz: int, options: StreamOptions | None = None, skip: int = 0, **asked: bool
) -> Open:
    """Of mono 16-bit audio."""
    return Open(
        session_id="ab",
        audio=AudioFormat(encoding=Encoding.PCM_S16LE, sample_rate_hz=rate_hz),
        options=options or StreamOptions(),
        limits=LIMITS,
        known=Known(skip=skip),
        updates=True,
        **asked,
    )


async def hear_all(session: Relay) -> list[dict[str, Any]]:
    """Everything up to its end, in one order and numbered without a gap."""
    messages: list[dict[str, Any]] = []
    async with asyncio.timeout(PATIENCE_S):
        while True:
            said = await session.said()
            messages += map(json.loads, said.texts)
            if said.ended is not None:
                assert [message["seq"] for message in messages] == list(range(len(messages)))
                return messages


async def until(holds: Any) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not holds():
            await asyncio.sleep(0.001)


def events(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What does not depend on time; without numbers, which count what does."""
    kinds = ("note_on", "note_off", "note_update", "pedal", "beat", "done")
    return [{**one, "seq": 0} for one in messages if one["type"] in kinds]
