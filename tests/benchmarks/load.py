"""One, half, all and twice the sessions that are admitted, of each kind.

Streams at the pace of a microphone against a real server. Past the limit the rest is refused, and
those who came in are to stay on time.
"""

import argparse
import math
import time
from pathlib import Path
from typing import Any

import httpx

from model.config import SAMPLE_RATE
from service.ops.capacity import Capacity
from service.protocol.options import Mode, StreamOptions
from tests.benchmarks import machine
from tests.benchmarks.service.streams import measured
from tests.service.servers import RunningServer

KINDS = {"block": StreamOptions(block_frames=8), "anytime": StreamOptions(mode=Mode.ANYTIME)}
LIMITS = {"RSE_MAX_SESSIONS": "auto", "RSE_MAX_SESSIONS_PER_CLIENT": "100000"}


def measure(
    server: RunningServer, music: Path, count: int, seconds: float, mode: str
) -> dict[str, Any]:
    """So many streams at once; `cores` is processor time over time."""
    began_s, used_s = time.monotonic(), machine.cpu_s(server.process.pid)
    trial = measured(server.url, music, count, seconds, mode)
    return {
        "refused": trial["failed"],
        "events": trial["events"],
        **{f"late_ms_{name}": late for name, late in (trial["lateness_ms"] or {}).items()},
        "behind_ms_p99": (trial["behind_ms"] or {}).get("p99", math.nan),
        "cores": (machine.cpu_s(server.process.pid) - used_s) / (time.monotonic() - began_s),
        "memory_mb": machine.memory_mb(server.process.pid),
    }


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Figures at each load of a server that admits as many sessions as it measures."""
    seconds = 10.0 if options.quick else 60.0
    with machine.serving(*machine.SERVICE, options.model, **LIMITS) as (server, folder):
        music = folder / "music.wav"
        machine.write_music(music, seconds, options.audio)
        info = httpx.get(f"{server.url}/info").json()
        figures: dict[str, Any] = {"capacity": info["capacity"]}
        limit = info["capacity"]["sessions_windows_per_s_limit"]
        for mode, kind in KINDS.items():
            admitted = max(1, int(limit / Capacity(0.0, SAMPLE_RATE).asked_per_s(kind)))
            for count in sorted({1, max(1, admitted // 2), admitted, 2 * admitted}):
                figures[f"{mode}, {count} streams, {admitted} admitted"] = measure(
                    server, music, count, seconds, mode
                )
    return figures
