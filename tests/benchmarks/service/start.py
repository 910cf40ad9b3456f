"""From the start of the process to ready, and from connecting to the message ``ready``."""

import argparse
import asyncio
import time
from typing import Any

from clients.client import TranscriptionClient
from service.protocol.client_messages import Start
from service.protocol.options import Encoding
from tests.benchmarks.machine import RATE_HZ, SERVICE, serving, spread


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Several starts of a server."""
    ready_s: list[float] = []
    connected_s: list[float] = []
    for _ in range(3 if options.quick else 7):
        began = time.perf_counter()
        with serving(*SERVICE, options.model) as (server, _):
            ready_s.append(time.perf_counter() - began)
            connected_s.append(asyncio.run(connected(server.url)))
    return {"start_to_ready_s": spread(ready_s), "connect_to_ready_message_s": spread(connected_s)}


async def connected(url: str) -> float:
    """Seconds from connecting to ``ready``."""
    began = time.perf_counter()
    options = Start(encoding=Encoding.PCM_S16LE, sample_rate=RATE_HZ)
    async with TranscriptionClient(url, options):
        return time.perf_counter() - began
