"""A long recording through the service's own path: times real time, and peak memory.

A separate process transcribes, so that the peak memory includes nothing but the pipeline.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from service.engine.load import available_cores, load_network
from service.stream.recording import TranscriptionResult, transcribe_recording
from service.stream.windows import InferenceEngine
from service.workers.messages import WorkerConfig
from service.workers.pool import BackgroundPool, WorkerPool
from tests.benchmarks.machine import peak_mb, write_music

HOUR_S = 3600.0
QUICK_S = 300.0


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Times real time of an hour; five minutes, if quick."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "recording.flac")
        write_music(path, QUICK_S if options.quick else HOUR_S, options.audio)
        command = [sys.executable, "-m", "tests.benchmarks.file", str(path), options.model]
        figures: dict[str, Any] = json.loads(subprocess.check_output(command))
    return figures


def measure(path: Path, engine: InferenceEngine) -> dict[str, Any]:
    """Transcribes the file once."""
    began = time.perf_counter()
    with path.open("rb") as file:
        for item in transcribe_recording(file, engine):
            if isinstance(item, TranscriptionResult):
                done = item
    return {
        "duration_s": done.totals.audio_s,
        "notes": len(done.notes),
        "times_real_time": done.totals.audio_s / (time.perf_counter() - began),
        "peak_mb": peak_mb(),
        "workers": engine.workers,
    }


if __name__ == "__main__":  # the measuring process
    background = BackgroundPool(
        WorkerPool(
            WorkerConfig(load=load_network, model=sys.argv[2], device="cpu"), available_cores()
        )
    )
    try:
        print(json.dumps(measure(Path(sys.argv[1]), background.pool)))
    finally:
        background.close()
