"""Sessions with the workers of a pool, without a websocket."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from service.live.session import SessionProxy
from service.protocol.client_messages import Start
from service.protocol.options import Encoding
from service.protocol.server_messages import Limits
from service.stream.session import OpenSession
from service.workers.pool import WorkerPool
from tests.service.apps import of_type

TIMEOUT_S = 120.0
LIMITS = Limits(max_message_bytes=1, max_session_s=1, idle_timeout_s=1, max_buffered_ms=1)
OVERLOAD_LAG_S = 1.5


@asynccontextmanager
async def running_pool(pool: WorkerPool) -> AsyncIterator[WorkerPool]:
    """Start a pool, and close it at the end."""
    await pool.start()
    try:
        yield pool
    finally:
        await pool.close()


def open_command(rate_hz: int, **options: Any) -> OpenSession:
    """Return the command that opens a session of mono 16-bit audio."""
    start = Start(encoding=Encoding.PCM_S16LE, sample_rate=rate_hz, updates=True, **options)
    return OpenSession(start, "ab", LIMITS, OVERLOAD_LAG_S)


def open_session(pool: WorkerPool, opening: OpenSession) -> SessionProxy:
    return SessionProxy(opening, pool.config, pool.least_loaded())


async def receive_all(session: SessionProxy, messages: list[dict[str, Any]]) -> None:
    """Append all messages up to the end of the session. Assert that `seq` has no gap."""
    async with asyncio.timeout(TIMEOUT_S):
        while True:
            output = await session.next_output()
            messages += map(json.loads, output.messages)
            if output.final_state is not None:
                assert [message["seq"] for message in messages] == list(range(len(messages)))
                return


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        while not condition():
            await asyncio.sleep(0.001)


def events(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the messages that do not depend on time, with ``seq`` 0, which does."""
    kinds = ("note_on", "note_off", "note_update", "pedal", "beat", "done")
    return [{**message, "seq": 0} for message in of_type(messages, *kinds)]
