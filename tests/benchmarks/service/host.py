"""What a live stream costs a processor beside the model: sockets, messages, resampling, notes.

The real service with a model that computes nothing and hears nothing. On a GPU this is what is left
for the processor, and one process does most of it on one core.
"""

import argparse
import tempfile
from pathlib import Path
from typing import Any

from tests.benchmarks import load
from tests.benchmarks.machine import cpu_s, spread, write_music
from tests.service.servers import TONES, server_starter

STREAMS = 16


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Processor time a stream takes, in thousandths of a core."""
    seconds, runs = (10.0, 2) if options.quick else (30.0, 5)
    with tempfile.TemporaryDirectory() as folder, server_starter(Path(folder)) as start:
        music = Path(folder, "music.wav")
        write_music(music, seconds, options.audio)
        server = start(
            *(*TONES, "none"),
            RSE_MAX_SESSIONS=str(STREAMS),
            RSE_MAX_SESSIONS_PER_CLIENT=str(STREAMS),
        )
        used = []
        for _ in range(runs):
            before_s = cpu_s(server.process.pid)
            trial = load.measure(server, music, STREAMS, seconds)
            assert not trial["refused"], trial["refusals"]
            used.append(1000 * (cpu_s(server.process.pid) - before_s) / (STREAMS * seconds))
        server.terminate()
    return {"streams": STREAMS, "core_ms_a_stream_second": spread(used)}
