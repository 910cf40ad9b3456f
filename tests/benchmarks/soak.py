"""``python -m tests.benchmarks.soak``: hours of audio in one session, at ten times real time.

What the server holds is looked at on the way. It must be flat: the exit status says so.
"""

import argparse
import asyncio
import json
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from clients.client import TranscriptionClient
from service.protocol.client_messages import Start
from service.protocol.options import Encoding
from service.protocol.server_messages import Progress
from service.workers.live import MAX_BUFFERED_S
from tests.benchmarks import machine
from tests.service.faults.held import Held
from tests.service.servers import RunningServer

# After a tenth of the way everything that grows once has grown. Notes of two hours take a few MB.
WARM = 0.1
MOST_GROWTH_MB = 40.0
MOST_MORE_FILES = 2
LOOKS = 40
PIECES = 120  # of the music; each is a message
# A session takes no more than this, plus the audio that it is at work on.
MOST_BEHIND_MS = 1000 * MAX_BUFFERED_S + 1500.0


@dataclass(frozen=True)
class Look:
    """The server at one moment."""

    audio_s: float
    wall_s: float
    behind_ms: float
    memory_mb: float
    files: int
    threads: int


async def soak(
    server: RunningServer, pcm: np.ndarray, seconds: float, count: int = LOOKS
) -> list[Look]:
    """Plays int16 PCM at `machine.RATE_HZ` again and again, for at most ``seconds``."""
    options = Start(encoding=Encoding.PCM_S16LE, sample_rate=machine.RATE_HZ)
    looks: list[Look] = []
    behind_ms = 0.0
    began_s = time.monotonic()
    async with TranscriptionClient(server.url, options) as client:

        async def listen() -> None:
            nonlocal behind_ms
            async for event in client:
                if isinstance(event, Progress):
                    behind_ms = max(behind_ms, event.behind_ms)

        listener = asyncio.create_task(listen())
        sent_s, piece = 0.0, len(pcm) // PIECES
        for look in range(1, count + 1):
            while sent_s < seconds * look / count:
                at = round(sent_s * machine.RATE_HZ) % (piece * PIECES)
                await client.send(pcm[at : at + piece].tobytes())
                sent_s += piece / machine.RATE_HZ
            held = await asyncio.to_thread(Held.by, server)
            looks.append(
                Look(
                    sent_s,
                    time.monotonic() - began_s,
                    behind_ms,
                    machine.memory_mb(server.process.pid),
                    held.files,
                    held.threads,
                )
            )
            behind_ms = 0.0
        await client.stop()
        await listener
        assert client.sessions == 1
    return looks


def complaints(looks: list[Look]) -> list[str]:
    """What was not flat, in words."""
    warm = looks[round(WARM * len(looks)) :]
    found = []
    if (grown := warm[-1].memory_mb - warm[0].memory_mb) > MOST_GROWTH_MB:
        found.append(f"memory grew by {grown:.1f} MB; at most {MOST_GROWTH_MB:g} are expected")
    if (more := warm[-1].files - warm[0].files) > MOST_MORE_FILES:
        found.append(f"{more} more files are open")
    if (more := warm[-1].threads - warm[0].threads) > MOST_MORE_FILES:
        found.append(f"{more} more threads run")
    if (worst := max(look.behind_ms for look in looks)) > MOST_BEHIND_MS:
        found.append(f"{worst:.0f} ms behind; at most {MOST_BEHIND_MS:g} may be")
    return found


def main() -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.soak", description=__doc__)
    parser.add_argument("--hours", type=float, default=2.0, help="of audio")
    parser.add_argument("--model", default=machine.usual_model(), help=machine.MODEL_HELP)
    parser.add_argument("--json", type=Path, help="write what was seen to this file")
    options = parser.parse_args()
    pcm = (np.clip(machine.music(60.0), -1, 1) * 32767).astype("<i2")
    with machine.serving(*machine.SERVICE, options.model) as (server, _):
        looks = asyncio.run(soak(server, pcm, 3600 * options.hours))
    for look in looks:
        print(", ".join(f"{name} {value:.5g}" for name, value in asdict(look).items()))
    if options.json is not None:
        options.json.write_text(json.dumps([asdict(look) for look in looks], indent=1))
    found = complaints(looks)
    print("\n".join(found) or "flat")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
