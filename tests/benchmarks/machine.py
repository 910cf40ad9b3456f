"""Description of the machine, statistics of measurements, and music for benchmarks."""

import os
import platform
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
import torch
from numpy.typing import NDArray

from service.engine.load import available_cores
from tests.fakes import play
from tests.service.servers import RunningServer, server_starter

RATE_HZ = 44_100
SERVICE = "service", "--port", "{port}", "--model"
MODEL_HELP = "shipped weights, or a path (default: live)"


def processor() -> str:
    """Return the name of the processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else f"{platform.machine()} {platform.processor()}"


def describe() -> dict[str, Any]:
    """Return the processor, cores and library versions, and the GPU if there is one."""
    description: dict[str, Any] = {
        "processor": processor(),
        "cores": available_cores(),
        "python": platform.python_version(),
        "torch": torch.__version__,
    }
    if torch.cuda.is_available():
        description["gpu"] = torch.cuda.get_device_name()
    return description


def spread(values: Sequence[float]) -> dict[str, float]:
    """Return median, extremes and number of the measurements."""
    return {
        "median": statistics.median(values),
        "low": min(values),
        "high": max(values),
        "runs": len(values),
    }


def seconds(work: Callable[[], object], runs: int) -> list[float]:
    """Return the wall-clock time of each run in seconds, after one warm-up run."""
    work()
    times_s = []
    for _ in range(runs):
        start_s = time.perf_counter()
        work()
        times_s.append(time.perf_counter() - start_s)
    return times_s


@contextmanager
def serving(*program: str, **environment: str) -> Iterator[tuple[RunningServer, Path]]:
    """Run a server such as ``(*SERVICE, "live")`` in a separate process, with an empty folder."""
    with tempfile.TemporaryDirectory() as folder, server_starter(Path(folder)) as start:
        yield start(*program, **environment), Path(folder)


def process_tree(pid: int) -> list[int]:
    """Return the IDs of a process and of its children, the process first."""
    threads = [path.read_text().split() for path in Path(f"/proc/{pid}/task").glob("*/children")]
    return [pid, *(int(child) for children in threads for child in children)]


def cpu_s(pid: int, with_workers: bool = True) -> float:
    """Return the processor time of a service in seconds, user and system (proc(5), stat)."""
    pids = process_tree(pid) if with_workers else [pid]
    stats = [Path(f"/proc/{n}/stat").read_text().rpartition(")")[2].split() for n in pids]
    return sum(int(stat[11]) + int(stat[12]) for stat in stats) / os.sysconf("SC_CLK_TCK")


def peak_mb() -> float:
    """Return the peak memory of this process and its children in MB (10^6 bytes)."""
    return sum(_memory_mb(pid, "VmHWM") for pid in process_tree(os.getpid()))


def memory_mb(pid: int) -> float:
    """Return the resident memory of a service in MB (10^6 bytes)."""
    return sum(_memory_mb(process, "VmRSS") for process in process_tree(pid))


def _memory_mb(pid: int, kind: str) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(kind):
            return int(line.split()[1]) * 1024 / 1e6
    raise OSError(f"/proc/{pid}/status has no {kind}")


def music(duration_s: float, seed: int = 0) -> NDArray[np.float32]:
    """Return chords with overtones and noise at RATE_HZ, with about 8 notes per second."""
    rng = np.random.default_rng(seed)
    out = 0.002 * rng.standard_normal(round(duration_s * RATE_HZ)).astype(np.float32)
    for onset_s in np.arange(0.1, duration_s - 0.5, 0.375):
        start = round(onset_s * RATE_HZ)
        for pitch in rng.choice(np.arange(40, 84), 3, replace=False).tolist():
            length_s = float(min(rng.uniform(0.2, 0.9), duration_s - onset_s))
            notes = [(pitch + above, 0.0, length_s) for above in (0, 12, 19, 24)]
            for number, note in enumerate(notes, 1):
                tone = play([note], length_s, RATE_HZ, 0.08 / number)
                fade = np.exp(-3 * np.arange(len(tone)) / RATE_HZ, dtype=np.float32)
                out[start : start + len(tone)] += (tone * fade)[: len(out) - start]
    return out


def write_music(path: Path, duration_s: float, source: Path | None) -> None:
    """Write a file of this duration. It repeats the source, or :func:`music` without a source."""
    if source is None:
        samples, rate_hz = music(min(duration_s, 60.0)), RATE_HZ
    else:
        samples, rate_hz = soundfile.read(source, dtype="float32")
    missing = round(duration_s * rate_hz)
    channels = 1 if samples.ndim == 1 else samples.shape[1]
    with soundfile.SoundFile(path, "w", rate_hz, channels, subtype="PCM_16") as file:
        while missing:
            file.write(samples[:missing])
            missing -= min(missing, len(samples))
