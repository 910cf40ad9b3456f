"""The largest number of concurrent real-time streams, found by search.

A real server and a client process of its own; every stream sends 20 ms chunks of 48 kHz audio at
the pace of a microphone. A number of streams is carried if 99 of 100 events of all of them come
within 50 ms beyond the stated delay, and no stream is refused or fails.
"""

import argparse
import asyncio
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from service.protocol.client_messages import Start
from service.protocol.options import Encoding, Mode
from tests.benchmarks.machine import SERVICE, serving, write_music
from tests.benchmarks.service.live import RATE_HZ, Stream, percentiles, read_pcm, stream

LATE_MS = 50.0
MOST = 512
LIMITS = {"RSE_MAX_SESSIONS": str(MOST), "RSE_MAX_SESSIONS_PER_CLIENT": str(MOST)}
STREAM = Start(encoding=Encoding.PCM_S16LE, sample_rate=RATE_HZ, lookahead_ms=100.0, block_frames=8)
STREAMS = {
    "block": STREAM,
    "anytime": STREAM.model_copy(
        update={"mode": Mode.ANYTIME, "lookahead_ms": 200.0, "block_frames": None}
    ),
}


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Streams carried at 100 ms of look-ahead in blocks of eight, and the search's trials."""
    seconds = 10.0 if options.quick else 30.0
    trials: dict[int, dict[str, Any]] = {}
    with serving(*SERVICE, options.model, **LIMITS) as (server, folder):
        music = folder / "music.wav"
        write_music(music, seconds, options.audio)

        def carried(count: int) -> bool:
            if count not in trials:
                trials[count] = measured(server.url, music, count, seconds)
                print(f"{count} streams: {trials[count]}", file=sys.stderr)
            late_ms = trials[count]["lateness_ms"]
            return not trials[count]["failed"] and late_ms is not None and late_ms["p99"] < LATE_MS

        best = search(carried)
    return {
        "lookahead_ms": STREAM.lookahead_ms,
        "block_frames": STREAM.block_frames,
        "concurrent_streams": best,
        "trials": {str(count): trial for count, trial in sorted(trials.items())},
    }


def measured(
    url: str, music: Path, count: int, seconds: float, mode: str = "block"
) -> dict[str, Any]:
    """What this many concurrent streams see, in a client process of its own."""
    command = [sys.executable, "-m", "tests.benchmarks.service.streams"]
    command += [url, str(music), str(count), str(seconds), mode]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout
    figures: dict[str, Any] = json.loads(output)
    return figures


def search(carried: Callable[[int], bool]) -> int:
    """The largest number that is carried: doubled until one is not, then halved in between."""
    low, high = 0, 1
    while high <= MOST and carried(high):
        low, high = high, 2 * high
    while high - low > max(1, low // 8):
        middle = (low + high) // 2
        low, high = (middle, high) if carried(middle) else (low, middle)
    return low


async def trial(url: str, music: Path, count: int, seconds: float, start: Start) -> dict[str, Any]:
    """So many streams at once, which begin at different moments of a chunk."""
    pcm = read_pcm(music, seconds)

    async def one(number: int) -> Stream:
        await asyncio.sleep(number * 1.0 / count)
        return await stream(url, np.roll(pcm, number * RATE_HZ), start)

    results = await asyncio.gather(*map(one, range(count)), return_exceptions=True)
    carried = [result for result in results if isinstance(result, Stream)]
    late = [lateness for one in carried for lateness in one.lateness_ms]
    behind = [behind_ms for one in carried for behind_ms in one.behind_ms]
    failed = [repr(result) for result in results if isinstance(result, BaseException)]
    return {
        "failed": len(failed),
        "failures": sorted(set(failed)),
        "events": len(late),
        "lateness_ms": percentiles(late),
        "behind_ms": percentiles(behind),
    }


def main() -> None:
    """The client process; arguments: URL MUSIC COUNT SECONDS MODE."""
    url, music, count, seconds, mode = sys.argv[1:]
    result = trial(url, Path(music), int(count), float(seconds), STREAMS[mode])
    print(json.dumps(asyncio.run(result)))


if __name__ == "__main__":
    main()
