"""Benchmark of a recording that is streamed at the pace of a microphone to a real server process.

It measures the time from a note's sound to its message at the client, the lateness of each event
compared with the delay in ``ready``, the server's lag, and the processor time of the stream.
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
    note_on_ms: list[float]  # from the time of each note to its note_on at the client
    lateness_ms: list[float]  # of each event, compared with the stated delay of its type
    behind_ms: list[float]  # as reported by the server


async def stream(url: str, pcm: np.ndarray, options: Start, chunk_s: float = CHUNK_S) -> Stream:
    """Send int16 PCM in chunks, each at the time at which a microphone would deliver it."""
    lateness: list[float] = []
    note_on: list[float] = []
    behind: list[float] = []
    step = round(chunk_s * options.sample_rate)
    gc.freeze()  # A garbage collection of all modules would stop every stream for 0.15 s.
    async with TranscriptionClient(url, options) as client:
        assert client.ready is not None
        delay_ms, off_delay_ms = client.ready.delay_ms, client.ready.note_off_delay_ms
        start_s = time.monotonic()

        async def receive() -> None:
            async for event in client:
                now_s = time.monotonic() - start_s
                match event:
                    case NoteOn():
                        note_on.append(1000 * (now_s - event.time_s))
                        lateness.append(note_on[-1] - delay_ms)
                    case NoteOff():
                        lateness.append(1000 * (now_s - event.time_s) - off_delay_ms)
                    case Progress():
                        behind.append(event.behind_ms)

        receiver = asyncio.create_task(receive())
        for first in range(0, len(pcm), step):
            chunk = pcm[first : first + step]
            send_at_s = start_s + (first + len(chunk)) / options.sample_rate
            await asyncio.sleep(max(0.0, send_at_s - time.monotonic()))
            await client.send(chunk.tobytes())
        await client.stop()
        await receiver
    return Stream(delay_ms, note_on, lateness, behind)


def read_pcm(path: Path, seconds: float) -> np.ndarray:
    """Return the first ``seconds`` of a recording as mono int16 at RATE_HZ."""
    with soundfile.SoundFile(path) as file:
        samples = file.read(round(seconds * file.samplerate), dtype="float32", always_2d=True)
        resampled = soxr.resample(samples.mean(axis=1), file.samplerate, RATE_HZ)
    return (np.clip(resampled, -1, 1) * 32767).astype("<i2")


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Measure one stream. ``core_share`` is the server's processor time per second of audio."""
    seconds = 20.0 if options.quick else 120.0
    start = Start(
        encoding=Encoding.PCM_S16LE,
        sample_rate=RATE_HZ,
        lookahead_ms=options.lookahead_ms,
        mode=options.mode,
    )
    with serving(*SERVICE, options.model) as (server, folder):
        write_music(folder / "music.wav", seconds, options.audio)
        pcm = read_pcm(folder / "music.wav", seconds)
        used_s = cpu_s(server.process.pid)
        result = asyncio.run(stream(server.url, pcm, start, MICROPHONE_CHUNK_S))
        used_s = cpu_s(server.process.pid) - used_s
    return {
        "core_share": used_s / seconds,
        "stated_delay_ms": result.delay_ms,
        "events": len(result.lateness_ms),
        "sound_to_note_on_ms": percentiles(result.note_on_ms),
        "lateness_ms": percentiles(result.lateness_ms),
        "behind_ms": percentiles(result.behind_ms),
    }


def percentiles(values: list[float]) -> dict[str, float] | None:
    """Return PERCENTILES of the values, or None without values."""
    return {f"p{p}": float(np.percentile(values, p)) for p in PERCENTILES} if values else None
