"""From the start of the process to ready, and from connecting to the message ``ready``."""

import argparse
import asyncio
import tempfile
import time
from pathlib import Path
from typing import Any

from clients.client import TranscriptionClient
from service.protocol.client_messages import Start
from service.protocol.options import Encoding
from tests.benchmarks.machine import RATE_HZ, spread
from tests.service.servers import server_starter


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Several starts of a server."""
    ready_s: list[float] = []
    connected_s: list[float] = []
    for _ in range(3 if options.quick else 7):
        with tempfile.TemporaryDirectory() as folder, server_starter(Path(folder)) as start:
            began = time.perf_counter()
            server = start(
                *("service", "--port", "{port}", "--model", options.model),
            )
            ready_s.append(time.perf_counter() - began)
            connected_s.append(asyncio.run(connected(server.url)))
            server.terminate()
    return {"start_to_ready_s": spread(ready_s), "connect_to_ready_message_s": spread(connected_s)}


async def connected(url: str) -> float:
    """Seconds from connecting to ``ready``."""
    began = time.perf_counter()
    options = Start(encoding=Encoding.PCM_S16LE, sample_rate=RATE_HZ)
    async with TranscriptionClient(url, options):
        return time.perf_counter() - began
