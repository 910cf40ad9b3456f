"""Benchmark of a long recording: speed relative to real time, and peak memory.

A separate process transcribes, so that the peak memory includes the pipeline only.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from rse_transcribe.recordings import running
from service.engine.load import WorkerConfig, available_cores, load_network
from service.stream.recording import transcribe_recording
from service.stream.windows import InferenceEngine
from service.workers.pool import WorkerPool
from tests.benchmarks.machine import peak_mb, write_music

HOUR_S = 3600.0
QUICK_S = 300.0


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Measure an hour of music, or five minutes with ``--quick``."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "recording.flac")
        write_music(path, QUICK_S if options.quick else HOUR_S, options.audio)
        command = [sys.executable, "-m", "tests.benchmarks.file", str(path), options.model]
        figures: dict[str, Any] = json.loads(subprocess.check_output(command))
    return figures


def measure(path: Path, engine: InferenceEngine) -> dict[str, Any]:
    """Transcribe the file once."""
    start_s = time.perf_counter()
    with path.open("rb") as file:
        *_, last = transcribe_recording(file, engine)
    result = last.result
    assert result is not None
    return {
        "duration_s": result.totals.audio_s,
        "notes": len(result.notes),
        "times_real_time": result.totals.audio_s / (time.perf_counter() - start_s),
        "peak_mb": peak_mb(),
        "workers": engine.workers,
    }


if __name__ == "__main__":  # the measuring process
    setup = WorkerConfig(load=load_network, model=sys.argv[2], device="cpu")
    with running(WorkerPool(setup, available_cores())) as pool:
        print(json.dumps(measure(Path(sys.argv[1]), pool)))
