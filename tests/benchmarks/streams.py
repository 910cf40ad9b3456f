"""Benchmarks of concurrent live streams: lateness and processor time of a real server.

Every stream sends 20 ms chunks of 48 kHz audio at the pace of a microphone. Client processes run up
to CLIENT_STREAMS streams each.
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
MAX_STREAMS = 512
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
    """Search for the maximum number of streams with 100 ms of look-ahead and blocks of 8 frames.

    No stream may fail, and 99 % of all events must arrive less than LATE_MS after the stated delay.
    """
    seconds = 10.0 if options.quick else 30.0
    trials: dict[int, dict[str, Any]] = {}
    with serving(*SERVICE, options.model, **limits(MAX_STREAMS)) as (server, folder):
        music = folder / "music.wav"
        write_music(music, seconds, options.audio)

        def is_on_time(count: int) -> bool:
            if count not in trials:
                trials[count] = measure([server.url], music, count, seconds)
                print(f"{count} streams: {trials[count]}", file=sys.stderr)
            late_ms = trials[count]["lateness_ms"]
            return not trials[count]["failed"] and late_ms is not None and late_ms["p99"] < LATE_MS

        best = search(is_on_time)
    return {
        "concurrent_streams": best,
        "trials": {str(count): trial for count, trial in sorted(trials.items())},
    }


def search(is_on_time: Callable[[int], bool]) -> int:
    """Return the maximum number of streams by doubling and bisection, within an eighth."""
    low, high = 0, 1
    while high <= MAX_STREAMS and is_on_time(high):
        low, high = high, 2 * high
    while high - low > max(1, low // 8):
        middle = (low + high) // 2
        low, high = (middle, high) if is_on_time(middle) else (low, middle)
    return low


def run_host(options: argparse.Namespace) -> dict[str, Any]:
    """Measure the processor time of a stream without the model, in ms per second: sockets,
    messages, resampling, notes. The model computes nothing and detects nothing."""
    seconds, runs = (10.0, 2) if options.quick else (30.0, 5)
    core_ms = []
    with serving(*TONES, "none", **limits(HOST_STREAMS)) as (server, folder):
        music = folder / "music.wav"
        write_music(music, seconds, options.audio)
        for _ in range(runs):
            before_s = cpu_s(server.process.pid)
            trial = measure([server.url], music, HOST_STREAMS, seconds)
            assert not trial["failed"], trial["failures"]
            used_s = cpu_s(server.process.pid) - before_s
            core_ms.append(1000 * used_s / (HOST_STREAMS * seconds))
    return {"streams": HOST_STREAMS, "core_ms_per_stream_second": spread(core_ms)}


def run_load(options: argparse.Namespace) -> dict[str, Any]:
    """Measure one session, and half, all and twice the sessions that a server admits, in each mode.

    The server should reject sessions beyond its limit, and serve the others on time.
    """
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
                start_s, before_s = time.monotonic(), cpu_s(pid)
                trial = measure([server.url], music, count, seconds, mode)
                figures[f"{mode}, {count} streams, {admitted} admitted"] = {
                    "rejected": trial["failed"],
                    "events": trial["events"],
                    "late_ms": trial["lateness_ms"],
                    "behind_ms_p99": (trial["behind_ms"] or {}).get("p99", math.nan),
                    "cores": (cpu_s(pid) - before_s) / (time.monotonic() - start_s),
                    "memory_mb": memory_mb(pid),
                }
    return figures


def run_many(options: argparse.Namespace) -> dict[str, Any]:
    """Measure the numbers of concurrent streams in ``--streams``, in blocks of 8 frames, shared by
    ``--services`` services: the lateness of events, and the processor time of the services' main
    processes and of their workers. With ``--stub`` the network needs almost no time."""
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
            start_s, before_s = time.monotonic(), processor_times(pids)
            trial = measure(urls, music, count, seconds)
            used_s = processor_times(pids) - before_s
            trial["cores"] = float(used_s.sum()) / (time.monotonic() - start_s)
            services_ms, workers_ms = (1000 * used_s / (count * seconds)).tolist()
            trial["services_core_ms_per_stream_second"] = services_ms
            trial["workers_core_ms_per_stream_second"] = workers_ms
            figures[f"{count} streams"] = trial
            print(f"{count} streams: {trial}", file=sys.stderr)
    return figures


def processor_times(pids: Sequence[int]) -> NDArray[np.float64]:
    """Return the processor times in seconds of the services' main processes and workers, [2]."""
    main_s = sum(cpu_s(pid, with_workers=False) for pid in pids)
    return np.array([main_s, sum(map(cpu_s, pids)) - main_s])


def run_bursts(options: argparse.Namespace) -> dict[str, Any]:
    """Measure the lateness of live streams, without and with bursts of HTTP requests for the page,
    probes and invalid scores from BURST_CLIENTS connections."""
    seconds = 10.0 if options.quick else 30.0
    with serving(*SERVICE, options.model, **limits(BURST_STREAMS)) as (server, folder):
        music = folder / "music.wav"
        write_music(music, seconds, options.audio)
        alone = measure([server.url], music, BURST_STREAMS, seconds)
        stop = threading.Event()
        with ThreadPoolExecutor(BURST_CLIENTS) as clients:
            bursts = [clients.submit(burst, server.url, stop) for _ in range(BURST_CLIENTS)]
            with_bursts = measure([server.url], music, BURST_STREAMS, seconds)
            stop.set()
        statuses = sum((future.result() for future in bursts), Counter[int]())
    figures = {"requests_per_second": statuses.total() / seconds, "statuses": dict(statuses)}
    return {"alone": alone, "with bursts": with_bursts, **figures}


def burst(url: str, stop: threading.Event) -> Counter[int]:
    """Send BURST_REQUESTS one after another, pause, and repeat. Return counts of the statuses."""
    statuses: Counter[int] = Counter()
    with httpx.Client(base_url=url, timeout=30.0) as client:
        while not stop.is_set():
            for number in range(BURST_REQUESTS):
                path = ("/", "/healthz", "/readyz", "/info")[number % 4]
                response = client.get(path) if number % 8 else client.post("/score", json={})
                statuses[response.status_code] += 1
            stop.wait(BURST_PAUSE_S)
    return statuses


def measure(
    urls: Sequence[str], music: Path, count: int, seconds: float, mode: str = "block"
) -> dict[str, Any]:
    """Measure ``count`` concurrent streams in client processes, shared evenly among services."""
    command = [sys.executable, "-m", "tests.benchmarks.streams"]
    parts = len(urls) * -(-count // (CLIENT_STREAMS * len(urls)))
    counts = [len(part) for part in np.array_split(np.arange(count), parts)]
    clients = [
        subprocess.Popen(
            [*command, urls[number % len(urls)], str(music), str(streams), str(seconds), mode],
            stdout=subprocess.PIPE,
        )
        for number, streams in enumerate(counts)
        if streams
    ]
    outputs = [json.loads(client.communicate()[0]) for client in clients]
    late, behind, failures = (
        [value for output in outputs for value in output[name]]
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
    """Run ``count`` concurrent streams whose chunks are not synchronous."""
    pcm, kind = read_pcm(music, seconds), KINDS[mode]
    start = Start(
        encoding=Encoding.PCM_S16LE,
        sample_rate=RATE_HZ,
        mode=kind.mode,
        lookahead_ms=kind.lookahead_ms,
        block_frames=None if kind.mode == Mode.ANYTIME else kind.block_frames,
    )

    async def delayed_stream(number: int) -> Stream:
        await asyncio.sleep(number / count)
        return await stream(url, np.roll(pcm, number * RATE_HZ), start)

    results = await asyncio.gather(*map(delayed_stream, range(count)), return_exceptions=True)
    completed = [result for result in results if isinstance(result, Stream)]
    return {
        "late_ms": [late_ms for result in completed for late_ms in result.lateness_ms],
        "behind_ms": [behind_ms for result in completed for behind_ms in result.behind_ms],
        "failures": [repr(result) for result in results if isinstance(result, BaseException)],
    }


if __name__ == "__main__":  # the client process
    url, music, count, seconds, mode = sys.argv[1:]
    print(json.dumps(asyncio.run(trial(url, Path(music), int(count), float(seconds), mode))))
