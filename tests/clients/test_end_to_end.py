"""The clients with the real service in a separate process."""

import asyncio
import json
import os
import signal
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import soundfile

from clients import client as client_module
from clients.client import TranscriptionClient
from rse_transcribe import command
from service.protocol.client_messages import Start
from service.protocol.options import Encoding
from service.protocol.server_messages import NoteOff, NoteOn, NoteUpdate
from tests.benchmarks.machine import family
from tests.fakes import play
from tests.service.servers import TONES, RunningServer, server_starter, wait_until

RATE = 44_100
# (pitch, onset, offset) in seconds: chords, a re-strike, notes at both ends of the recording.
NOTES = [
    (69, 0.02, 0.9),
    (81, 0.5, 1.4),
    (57, 1.0, 2.0),
    (69, 1.1, 1.6),
    (69, 1.7, 2.4),
    (93, 2.2, 3.2),
    (57, 2.6, 3.2),
]
DURATION_S = 3.2


def transcribe(server: RunningServer, *arguments: str | Path) -> int:
    return command.main([*map(str, arguments), "--server", server.url])


async def test_websocket_and_upload_tell_the_same(ensemble: RunningServer, tmp_path: Path) -> None:
    """The audio is much longer than the limit in flight: flow control does not change the notes."""
    long = [(69, second + 0.1, second + 0.6) for second in range(40)]
    path, notes = tmp_path / "long.wav", tmp_path / "long.json"
    samples = play(long, 40, 8_000, 0.11)  # a cello's
    soundfile.write(path, samples, 8_000, subtype="FLOAT")
    asked = ("--instruments", "viola,cello")
    assert await asyncio.to_thread(transcribe, ensemble, path, *asked, "-o", notes) == 0
    options = Start(
        encoding=Encoding.PCM_F32LE,
        sample_rate=8_000,
        lookahead_ms=200,
        block_frames=32,
        instruments=("viola", "cello"),
    )
    async with TranscriptionClient(ensemble.url, options) as client:
        await client.send(samples.astype("<f4").tobytes())
        await client.stop()
    assert len(client.notes.notes) == 40
    live = [{k: v for k, v in asdict(n).items() if v is not None} for n in client.notes.notes]
    assert json.loads(notes.read_text())["notes"] == live


async def test_workers_that_die_or_hang_change_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "FIRST_DELAY_S", 0.05)
    with server_starter(tmp_path) as start:
        server = start(*TONES, RSE_WORKERS="2", RSE_HANG_TIMEOUT_S="5")
        whole = await perform(server, None)
        for fault in (signal.SIGKILL, signal.SIGSTOP):
            assert await perform(server, fault) == whole


async def perform(server: RunningServer, fault: signal.Signals | None) -> tuple[Any, ...]:
    """Send NOTES, and the signal to all workers once the notes are nearly complete."""
    audio = (play(NOTES, DURATION_S, RATE) * 32767).astype("<i2").tobytes()
    options = Start(encoding=Encoding.PCM_S16LE, sample_rate=RATE, lookahead_ms=50)
    step = RATE // 10  # bytes: 50 ms
    async with TranscriptionClient(server.url, options, give_up_s=None) as client:
        for number, start in enumerate(range(0, len(audio), step)):
            await client.send(audio[start : start + step])
            if number == 30 and fault:
                for worker in family(server.process.pid)[1:]:
                    os.kill(worker, fault)
                await wait_until(lambda: client.performance.sessions > 1)
        done = await client.stop()
        events = [e async for e in client if isinstance(e, NoteOn | NoteUpdate | NoteOff)]
    assert client.performance.sessions == (2 if fault else 1)
    return events, done.midi, done.totals.notes, done.totals.received_samples
