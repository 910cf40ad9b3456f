"""Tests of the clients with the real service in a separate process."""

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
from tests.benchmarks.machine import process_tree
from tests.fakes import play
from tests.service.servers import START_S, TONES, RunningServer, server_starter, wait_until

RATE = 44_100
# (pitch, onset_s, offset_s): chords, repeated notes, and notes at both ends of the recording.
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


async def test_websocket_and_upload_return_the_same_notes(
    ensemble: RunningServer, tmp_path: Path
) -> None:
    """The audio far exceeds the limit in flight, so that flow control acts."""
    tones = [(69, second + 0.1, second + 0.6) for second in range(40)]
    path, notes = tmp_path / "long.wav", tmp_path / "long.json"
    samples = play(tones, 40, 8_000, 0.11)  # the loudness that means a cello
    soundfile.write(path, samples, 8_000, subtype="FLOAT")
    arguments = [str(path), "--instruments", "viola,cello", "-o", str(notes)]
    arguments += ["--server", ensemble.url]
    assert await asyncio.to_thread(command.main, arguments) == 0
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


async def test_failing_workers_change_no_events(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "FIRST_DELAY_S", 0.05)
    with server_starter(tmp_path) as start:
        server = start(*TONES, RSE_WORKERS="2", RSE_HANG_TIMEOUT_S="5")
        expected = await perform(server, None)
        for fault in (signal.SIGKILL, signal.SIGSTOP):
            assert await perform(server, fault) == expected


async def perform(server: RunningServer, fault: signal.Signals | None) -> tuple[Any, ...]:
    """Send NOTES to the server. After about half of them, send the signal to all workers."""
    audio = (play(NOTES, DURATION_S, RATE) * 32767).astype("<i2").tobytes()
    options = Start(encoding=Encoding.PCM_S16LE, sample_rate=RATE, lookahead_ms=50)
    step = RATE // 10  # bytes: 50 ms
    async with TranscriptionClient(server.url, options, give_up_s=None) as client:
        for number, start in enumerate(range(0, len(audio), step)):
            await client.send(audio[start : start + step])
            if number == 30 and fault:
                for worker in process_tree(server.process.pid)[1:]:
                    os.kill(worker, fault)
                await wait_until(lambda: client.performance.sessions > 1, timeout_s=START_S)
        done = await client.stop()
        events = [e async for e in client if isinstance(e, NoteOn | NoteUpdate | NoteOff)]
    assert client.performance.sessions == (2 if fault else 1)
    return events, done.midi, done.totals.notes, done.totals.received_samples
