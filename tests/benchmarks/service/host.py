"""What a live stream costs a processor beside the model: sockets, messages, resampling, notes.

The real service with a model that computes nothing and hears nothing. On a GPU this is what is left
for the processor, and one process does most of it on one core.
"""

import argparse
from typing import Any

from tests.benchmarks.machine import cpu_s, serving, spread, write_music
from tests.benchmarks.service.streams import LIMITS, measured
from tests.service.servers import TONES

STREAMS = 16


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Processor time a stream takes, in thousandths of a core."""
    seconds, runs = (10.0, 2) if options.quick else (30.0, 5)
    used = []
    limits = {name: str(STREAMS) for name in LIMITS}
    with serving(*TONES, "none", **limits) as (server, folder):
        music = folder / "music.wav"
        write_music(music, seconds, options.audio)
        for _ in range(runs):
            before_s = cpu_s(server.process.pid)
            trial = measured(server.url, music, STREAMS, seconds)
            assert not trial["failed"], trial["failures"]
            used.append(1000 * (cpu_s(server.process.pid) - before_s) / (STREAMS * seconds))
    return {"streams": STREAMS, "core_ms_a_stream_second": spread(used)}
