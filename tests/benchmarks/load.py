"""``python -m tests.benchmarks.load``: one, half, all and twice the sessions that are admitted.

Streams at the pace of a microphone against a real server. Past the limit the rest is refused, and
those who came in are to stay on time.
"""

import argparse
import json
import math
import time
from pathlib import Path
from typing import Any

import httpx

from tests.benchmarks import machine
from tests.benchmarks.service.streams import measured
from tests.service.servers import RunningServer

KINDS = {"block": "block_frames=8", "anytime": "anytime"}  # as `/info` calls them
COLUMNS = ("streams", "refused", "p50", "p95", "p99", "behind_p99", "cores", "memory_mb")


def measure(
    server: RunningServer, music: Path, count: int, seconds: float, mode: str
) -> dict[str, Any]:
    """So many streams at once; `cores` is processor time over time."""
    began_s, used_s = time.monotonic(), machine.cpu_s(server.process.pid)
    trial = measured(server.url, music, count, seconds, mode)
    return {
        "streams": count,
        "refused": trial["failed"],
        "events": trial["events"],
        **(trial["lateness_ms"] or {}),
        "behind_p99": (trial["behind_ms"] or {}).get("p99", math.nan),
        "cores": (machine.cpu_s(server.process.pid) - used_s) / (time.monotonic() - began_s),
        "memory_mb": machine.memory_mb(server.process.pid),
    }


def run(seconds: float, model: str, mode: str) -> dict[str, Any]:
    """Figures at each load of a server that admits as many sessions as it measures."""
    limits = {"RSE_MAX_SESSIONS": "auto", "RSE_MAX_SESSIONS_PER_CLIENT": "100000"}
    with machine.serving(*machine.SERVICE, model, **limits) as (server, folder):
        music = folder / "music.wav"
        machine.write_music(music, seconds, None)
        info = httpx.get(f"{server.url}/info").json()
        admitted = info["max_sessions"]
        if info["capacity"] is not None:
            admitted = info["capacity"]["sessions"][KINDS[mode]]
        loads = sorted({1, max(1, admitted // 2), admitted, 2 * admitted} - {0})
        figures = [measure(server, music, count, seconds, mode) for count in loads]
    return {"capacity": info["capacity"], "admitted": admitted, "load": figures}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.load", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="10 s of each load, not 60 s")
    parser.add_argument("--mode", choices=KINDS, default="block", help="of the streams")
    parser.add_argument("--model", default=machine.usual_model(), help=machine.MODEL_HELP)
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    options = parser.parse_args()
    seconds = 10.0 if options.quick else 60.0
    figures = run(seconds, options.model, options.mode)
    if options.json is not None:
        about = {"machine": machine.describe(), "model": options.model, "mode": options.mode}
        everything = {**about, **figures}
        options.json.write_text(json.dumps(everything, indent=1))
    print(f"capacity: {figures['capacity']}")
    print("lateness beyond the stated delay, and audio not transcribed yet beyond it, in ms")
    print(" ".join(f"{name:>10}" for name in COLUMNS))
    for row in figures["load"]:
        values = (row.get(name, float("nan")) for name in COLUMNS)
        print(" ".join(f"{value:>10.4g}" for value in values))


if __name__ == "__main__":
    main()
