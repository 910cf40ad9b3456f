"""The first note: from the process's start to ready, and from connecting to the first event."""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from clients.client import TranscriptionClient
from service.engine.runners import available_cores
from service.protocol.client_messages import Start
from service.protocol.options import Encoding
from service.protocol.server_messages import NoteOn
from tests.benchmarks.machine import spread
from tests.fakes import play
from tests.service.conftest import server_starter

RATE_HZ = 48_000
NOTE_S = 0.2  # when the tone begins, after the first sample
DURATION_S = 3.0
CHUNK = RATE_HZ // 50


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Several starts of a server; a stream to each that is sent at the pace of a microphone."""
    ready_s: list[float] = []
    connected_s: list[float] = []
    first_s: list[float] = []
    for _ in range(3 if options.quick else 7):
        with tempfile.TemporaryDirectory() as folder, server_starter(Path(folder)) as start:
            began = time.perf_counter()
            server = start(
                *("service", "--port", "{port}", "--model", options.model),
                OMP_NUM_THREADS=str(available_cores()),
            )
            ready_s.append(time.perf_counter() - began)
            to_ready_s, to_event_s = asyncio.run(first_event(server.url))
            connected_s.append(to_ready_s)
            if to_event_s is not None:
                first_s.append(to_event_s)
            server.terminate()
    return {
        "start_to_ready_s": spread(ready_s),
        "connect_to_ready_message_s": spread(connected_s),
        "tone_to_first_event_s": spread(first_s) if first_s else None,
    }


async def first_event(url: str) -> tuple[float, float | None]:
    """Seconds from connecting to ``ready``, and from a tone's beginning to its first event."""
    tone = play([(69, NOTE_S, DURATION_S), (81, NOTE_S, DURATION_S)], DURATION_S, RATE_HZ)
    pcm = (tone * 32767).astype("<i2")
    began = time.perf_counter()
    async with TranscriptionClient(
        url, Start(encoding=Encoding.PCM_S16LE, sample_rate=RATE_HZ)
    ) as client:
        to_ready_s = time.perf_counter() - began
        streaming = time.perf_counter()

        async def listen() -> float | None:
            async for event in client:
                if isinstance(event, NoteOn):
                    return time.perf_counter() - streaming - NOTE_S
            return None

        listener = asyncio.create_task(listen())
        for chunk in np.split(pcm, range(CHUNK, len(pcm), CHUNK)):
            if listener.done():
                break
            await client.send(chunk.tobytes())
            await asyncio.sleep(len(chunk) / RATE_HZ)
        if not listener.done():
            await client.stop()
        return to_ready_s, await listener
