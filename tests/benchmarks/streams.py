"""Many live streams at once against a real server: how many are on time, what they cost.

Every stream sends 20 ms chunks of 48 kHz audio at the pace of a microphone, from a client process
of its own.
"""

import argparse
import asyncio
import json
import math
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from numpy.typing import NDArray

from model.config import HOP, SAMPLE_RATE
from service.ops.capacity import SESSION_WINDOWS_PER_S
from service.protocol.client_messages import Start
from service.protocol.options import Encoding, Mode, StreamOptions
from tests.benchmarks.live import RATE_HZ, Stream, percentiles, read_pcm, stream
from tests.benchmarks.machine import SERVICE, cpu_s, memory_mb, serving, spread, write_music
from tests.service.servers import TONES

LATE_MS = 50.0
MOST = 512
HOST_STREAMS = 16
CLIENT_STREAMS = 50  # maximum number in a client process
BURST_STREAMS, BURST_CLIENTS, BURST_REQUESTS, BURST_PAUSE_S = 8, 16, 64, 1.0
KINDS = {
    "block": StreamOptions(block_frames=8),
    "anytime": StreamOptions(mode=Mode.ANYTIME, lookahead_ms=200.0),
}


def limits(sessions: object) -> dict[str, str]:
    return {"RSE_MAX_SESSIONS": str(sessions), "RSE_MAX_SESSIONS_PER_CLIENT": "100000"}


def run(options: argparse.Namespace) -> dict[str, Any]:
    """The most streams at 100 ms of look-ahead in blocks of eight, found by search: 99 of 100
    events of all of them come within 50 ms beyond the stated delay, and no stream fails."""
    seconds = 10.0 if options.quick else 30.0
    trials: dict[int, dict[str, Any]] = {}
    with serving(*SERVICE, options.model, **limits(MOST)) as (server, folder):
        music = folder / "music.wav"
        write_music(music, seconds, options.audio)

        def carried(count: int) -> bool:
            if count not in trials:
                trials[count] = measured([server.url], music, count, seconds)
                print(f"{count} streams: {trials[count]}", file=sys.stderr)
            late_ms = trials[count]["lateness_ms"]
            return not trials[count]["failed"] and late_ms is not None and late_ms["p99"] < LATE_MS

        best = search(carried)
    return {
        "concurrent_streams": best,
        "trials": {str(count): trial for count, trial in sorted(trials.items())},
    }


def search(carried: Callable[[int], bool]) -> int:
    """The largest number that is carried: doubled until one is not, then halved in between."""
    low, high = 0, 1
    while high <= MOST and carried(high):
        low, high = high, 2 * high
    while high - low > max(1, low // 8):
        middle = (low + high) // 2
        low, high = (middle, high) if carried(middle) else (low, middle)
    return low


def run_host(options: argparse.Namespace) -> dict[str, Any]:
    """Measure the processor time of a stream without the model, in thousandths of a core: sockets,
    messages, resampling, notes. The model computes nothing and detects nothing."""
    seconds, runs = (10.0, 2) if options.quick else (30.0, 5)
    used = []
    with serving(*TONES, "none", **limits(HOST_STREAMS)) as (server, folder):
        music = folder / "music.wav"
        write_music(music, seconds, options.audio)
        for _ in range(runs):
            before_s = cpu_s(server.process.pid)
            trial = measured([server.url], music, HOST_STREAMS, seconds)
            assert not trial["failed"], trial["failures"]
            used.append(1000 * (cpu_s(server.process.pid) - before_s) / (HOST_STREAMS * seconds))
    return {"streams": HOST_STREAMS, "core_ms_a_stream_second": spread(used)}


def run_load(options: argparse.Namespace) -> dict[str, Any]:
    """One, half, all and twice the sessions that a server admits, of each kind. Past the limit the
    rest is refused, and those who came in are to stay on time."""
    seconds = 10.0 if options.quick else 60.0
    with serving(*SERVICE, options.model, **limits("auto")) as (server, folder):
        pid, music = server.process.pid, folder / "music.wav"
        write_music(music, seconds, options.audio)
        info = httpx.get(f"{server.url}/info").json()
        figures: dict[str, Any] = {"capacity": info["capacity"]}
        limit = info["capacity"]["sessions_windows_per_s_limit"]
        for mode, kind in KINDS.items():
            required = SAMPLE_RATE / HOP / kind.frames_per_window + SESSION_WINDOWS_PER_S
            admitted = max(1, int(limit / required))
            for count in sorted({1, max(1, admitted // 2), admitted, 2 * admitted}):
                began_s, used_s = time.monotonic(), cpu_s(pid)
                trial = measured([server.url], music, count, seconds, mode)
                figures[f"{mode}, {count} streams, {admitted} admitted"] = {
                    "refused": trial["failed"],
                    "events": trial["events"],
                    "late_ms": trial["lateness_ms"],
                    "behind_ms_p99": (trial["behind_ms"] or {}).get("p99", math.nan),
                    "cores": (cpu_s(pid) - used_s) / (time.monotonic() - began_s),
                    "memory_mb": memory_mb(pid),
                }
    return figures


def run_many(options: argparse.Namespace) -> dict[str, Any]:
    """Measure given numbers of concurrent streams in blocks of eight, over --services services: the
    lateness of events, and the processor time of the services' own processes and of their workers.
    With --stub, a network of almost no cost replaces a GPU."""
    seconds = 10.0 if options.quick else 30.0
    command = (*TONES, "chords") if options.stub else (*SERVICE, options.model)
    figures: dict[str, Any] = {}
    with ExitStack() as stack:
        started = [
            stack.enter_context(serving(*command, **limits(max(options.streams))))
            for _ in range(options.services)
        ]
        pids = [server.process.pid for server, _ in started]
        urls = [server.url for server, _ in started]
        music = started[0][1] / "music.wav"
        write_music(music, seconds, options.audio)
        figures["workers"] = [httpx.get(f"{url}/info").json()["workers"] for url in urls]
        for count in options.streams:
            began_s, before_s = time.monotonic(), processor_times(pids)
            trial = measured(urls, music, count, seconds)
            used_s = processor_times(pids) - before_s
            trial["cores"] = float(used_s.sum()) / (time.monotonic() - began_s)
            services_ms, workers_ms = (1000 * used_s / (count * seconds)).tolist()
            trial["services_core_ms_a_stream_second"] = services_ms
            trial["workers_core_ms_a_stream_second"] = workers_ms
            figures[f"{count} streams"] = trial
            print(f"{count} streams: {trial}", file=sys.stderr)
    return figures


def processor_times(pids: Sequence[int]) -> NDArray[np.float64]:
    """Return the processor time in seconds of services, without and of their workers, [2]."""
    alone = sum(cpu_s(pid, alone=True) for pid in pids)
    return np.array([alone, sum(map(cpu_s, pids)) - alone])


def run_bursts(options: argparse.Namespace) -> dict[str, Any]:
    """Measure the delay of events of live streams, alone and during bursts of HTTP requests for the
    page, probes and faulty scores from BURST_CLIENTS connections."""
    seconds = 10.0 if options.quick else 30.0
    with serving(*SERVICE, options.model, **limits(BURST_STREAMS)) as (server, folder):
        music = folder / "music.wav"
        write_music(music, seconds, options.audio)
        alone = measured([server.url], music, BURST_STREAMS, seconds)
        stop = threading.Event()
        with ThreadPoolExecutor(BURST_CLIENTS) as clients:
            bursts = [clients.submit(burst, server.url, stop) for _ in range(BURST_CLIENTS)]
            beside = measured([server.url], music, BURST_STREAMS, seconds)
            stop.set()
        statuses = sum((one.result() for one in bursts), Counter[int]())
    figures = {"requests_a_second": statuses.total() / seconds, "statuses": dict(statuses)}
    return {"alone": alone, "beside bursts": beside, **figures}


def burst(url: str, stop: threading.Event) -> Counter[int]:
    """Send BURST_REQUESTS as fast as they are answered, pause, and repeat. Count the statuses."""
    statuses: Counter[int] = Counter()
    with httpx.Client(base_url=url, timeout=30.0) as client:
        while not stop.is_set():
            for number in range(BURST_REQUESTS):
                path = ("/", "/healthz", "/readyz", "/info")[number % 4]
                answer = client.get(path) if number % 8 else client.post("/score", json={})
                statuses[answer.status_code] += 1
            stop.wait(BURST_PAUSE_S)
    return statuses


def measured(
    urls: Sequence[str], music: Path, count: int, seconds: float, mode: str = "block"
) -> dict[str, Any]:
    """Return the measurements of this many concurrent streams, run in client processes and shared
    evenly among services."""
    command = [sys.executable, "-m", "tests.benchmarks.streams"]
    parts = len(urls) * -(-count // (CLIENT_STREAMS * len(urls)))
    counts = [len(part) for part in np.array_split(np.arange(count), parts)]
    clients = [
        subprocess.Popen(
            [*command, urls[number % len(urls)], str(music), str(one), str(seconds), mode],
            stdout=subprocess.PIPE,
        )
        for number, one in enumerate(counts)
        if one
    ]
    answers = [json.loads(client.communicate()[0]) for client in clients]
    late, behind, failures = (
        [value for answer in answers for value in answer[name]]
        for name in ("late_ms", "behind_ms", "failures")
    )
    return {
        "failed": len(failures),
        "failures": sorted(set(failures)),
        "events": len(late),
        "lateness_ms": percentiles(late),
        "behind_ms": percentiles(behind),
    }


async def trial(
    url: str, music: Path, count: int, seconds: float, mode: str
) -> dict[str, list[Any]]:
    """So many streams at once, which begin at different moments of a chunk."""
    pcm, kind = read_pcm(music, seconds), KINDS[mode]
    start = Start(
        encoding=Encoding.PCM_S16LE,
        sample_rate=RATE_HZ,
        mode=kind.mode,
        lookahead_ms=kind.lookahead_ms,
        block_frames=None if kind.mode == Mode.ANYTIME else kind.block_frames,
    )

    async def one(number: int) -> Stream:
        await asyncio.sleep(number * 1.0 / count)
        return await stream(url, np.roll(pcm, number * RATE_HZ), start)

    results = await asyncio.gather(*map(one, range(count)), return_exceptions=True)
    carried = [result for result in results if isinstance(result, Stream)]
    return {
        "late_ms": [late_ms for one in carried for late_ms in one.lateness_ms],
        "behind_ms": [behind_ms for one in carried for behind_ms in one.behind_ms],
        "failures": [repr(result) for result in results if isinstance(result, BaseException)],
    }


if __name__ == "__main__":  # the client process
    url, music, count, seconds, mode = sys.argv[1:]
    print(json.dumps(asyncio.run(trial(url, Path(music), int(count), float(seconds), mode))))
