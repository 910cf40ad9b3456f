"""A recording streamed at the pace of a microphone to a real server process.

Measured: the time from a note's sound to its message at the client, how late each event arrives
beyond the delay that ``ready`` stated, the server's lag, and what the stream costs its processor.
"""

import argparse
import asyncio
import gc
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
import soxr

from clients.client import TranscriptionClient
from service.protocol.client_messages import Start
from service.protocol.options import Encoding
from service.protocol.server_messages import NoteOff, NoteOn, Progress
from tests.benchmarks.machine import SERVICE, cpu_s, serving, write_music

RATE_HZ = 48_000
CHUNK_S = 0.02
MICROPHONE_CHUNK_S = 0.01  # chunk length of clients.microphone
PERCENTILES = (50, 95, 99)


@dataclass
class Stream:
    """Measurements of a streaming client."""

    delay_ms: float
    on_ms: list[float]  # from the time of each note to its note_on at the client
    lateness_ms: list[float]  # of each event, beyond the delay stated for its kind
    behind_ms: list[float]  # as the server reports it


async def stream(url: str, pcm: np.ndarray, options: Start, chunk_s: float = CHUNK_S) -> Stream:
    """Sends int16 PCM in chunks, each when a microphone would have it."""
    lateness: list[float] = []
    on: list[float] = []
    behind: list[float] = []
    step = round(chunk_s * options.sample_rate)
    gc.freeze()  # walking all that is imported would stop every stream here for 0.15 s
    async with TranscriptionClient(url, options) as client:
        assert client.ready is not None
        delay_ms, off_delay_ms = client.ready.delay_ms, client.ready.note_off_delay_ms
        began = time.monotonic()

        async def listen() -> None:
            async for event in client:
                now = time.monotonic() - began
                match event:
                    case NoteOn():
                        on.append(1000 * (now - event.time_s))
                        lateness.append(1000 * (now - event.time_s) - delay_ms)
                    case NoteOff():
                        lateness.append(1000 * (now - event.time_s) - off_delay_ms)
                    case Progress():
                        behind.append(event.behind_ms)

        listener = asyncio.create_task(listen())
        for first in range(0, len(pcm), step):
            chunk = pcm[first : first + step]
            due = began + (first + len(chunk)) / options.sample_rate
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            await client.send(chunk.tobytes())
        await client.stop()
        await listener
    return Stream(delay_ms, on, lateness, behind)


def read_pcm(path: Path, seconds: float) -> np.ndarray:
    """The first `seconds` of a recording as mono int16 at RATE_HZ."""
    with soundfile.SoundFile(path) as file:
        samples = file.read(round(seconds * file.samplerate), dtype="float32", always_2d=True)
        resampled = soxr.resample(samples.mean(axis=1), file.samplerate, RATE_HZ)
    return (np.clip(resampled, -1, 1) * 32767).astype("<i2")


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Figures of one stream; `core_share` is what it costs the server's processor."""
    seconds = 20.0 if options.quick else 120.0
    asked = Start(
        encoding=Encoding.PCM_S16LE,
        sample_rate=RATE_HZ,
        lookahead_ms=options.lookahead_ms,
        mode=options.mode,
    )
    with serving(*SERVICE, options.model) as (server, folder):
        write_music(folder / "music.wav", seconds, options.audio)
        pcm = read_pcm(folder / "music.wav", seconds)
        used_s = cpu_s(server.process.pid)
        result = asyncio.run(stream(server.url, pcm, asked, MICROPHONE_CHUNK_S))
        used_s = cpu_s(server.process.pid) - used_s
    return {
        "core_share": used_s / seconds,
        "stated_delay_ms": result.delay_ms,
        "events": len(result.lateness_ms),
        "sound_to_note_on_ms": percentiles(result.on_ms),
        "lateness_ms": percentiles(result.lateness_ms),
        "behind_ms": percentiles(result.behind_ms),
    }


def percentiles(values: list[float]) -> dict[str, float] | None:
    """None of none."""
    return {f"p{p}": float(np.percentile(values, p)) for p in PERCENTILES} if values else None
