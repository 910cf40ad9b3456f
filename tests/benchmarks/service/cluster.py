"""Live streams in a single process and on Ray Serve with two model replicas, side by side.

The same streams, in turns, each system alone on the machine. What Ray Serve adds is two hops of
every message, from its proxy to the ingress replica and from there to a model replica and back.
"""

import argparse
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.benchmarks.machine import SERVICE, serving, spread, write_music
from tests.benchmarks.service.live import PERCENTILES
from tests.benchmarks.service.streams import LIMITS, MOST, measured
from tests.service.cluster.conftest import ray_cluster

STREAMS = 4
MODELS = 2


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Lateness beyond the stated delay, in ms, of each system, and what Ray adds."""
    seconds, rounds = (10.0, 1) if options.quick else (30.0, 3)
    late: dict[str, list[dict[str, Any]]] = {"single_process": [], "ray": []}
    failed = 0
    with tempfile.TemporaryDirectory() as name:
        music = Path(name, "music.wav")
        write_music(music, seconds, options.audio)
        for _ in range(rounds):
            for system, serve in (("single_process", single_process), ("ray", ray)):
                with serve(Path(name), options.model) as url:
                    trial = measured(url, music, STREAMS, seconds)
                print(f"{system}: {trial}", file=sys.stderr)
                if trial["lateness_ms"] is None:
                    raise RuntimeError(f"{system}: no event came")
                failed += trial["failed"]
                late[system].append(trial["lateness_ms"])
    late["overhead"] = [
        {name: ms - single[name] for name, ms in on_ray.items()}
        for single, on_ray in zip(late["single_process"], late["ray"], strict=True)
    ]
    return {"streams": STREAMS, "model_replicas": MODELS, "failed": failed} | {
        system: {f"p{p}_ms": spread([trial[f"p{p}"] for trial in trials]) for p in PERCENTILES}
        for system, trials in late.items()
    }


@contextmanager
def single_process(folder: Path, model: str) -> Iterator[str]:
    """The address of the service as one process with all cores."""
    with serving(*SERVICE, model, **LIMITS) as (server, _):
        yield server.url


@contextmanager
def ray(folder: Path, model: str) -> Iterator[str]:
    """The address of the service on Ray Serve, one core for each model replica."""
    with ray_cluster(folder) as cluster:
        settings = {"max_sessions": MOST, "max_sessions_per_client": MOST, "model": model}
        cluster.deploy(ingresses=1, models=MODELS, training="", settings=settings)
        yield cluster.url
