"""Determines the numbers of cores and workers, and loads weights on a device.

The functions import torch only when they need it: the import takes a second and 0.2 GB of memory.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

if TYPE_CHECKING:
    from service.engine.runners import EngineModel

MAX_WORKERS = 8
CORES_PER_GPU_WORKER = 4
"""Number of cores for each worker that uses a GPU. One worker can resample and track 125 to 200
streams, and a GPU can compute several times as many. Each worker that uses a GPU needs 2 to 3 GB of
memory."""
# Device files of the GPUs that PyTorch calls "cuda": NVIDIA's driver, WSL, and AMD's driver.
GPU_DEVICES = tuple(map(Path, ("/dev/nvidiactl", "/dev/dxg", "/dev/kfd")))

LoadModel = Callable[[str, str], Any]
"""Function that loads a model (name or path) on a device, which may be `auto`. It must be possible
to pickle the function, because workers may be processes."""

_OWN_GROUP = Path("/proc/self/cgroup")
_GROUPS = Path("/sys/fs/cgroup")


class WorkerConfig(NamedTuple):
    """Model and logs of the workers. ``model`` and ``device`` are the arguments of ``load``."""

    load: LoadModel
    model: str
    device: str
    log_format: Literal["text", "json"] = "text"


def may_use_gpu(device: str) -> bool:
    """True if the device is a GPU, or is `auto` and the system has a GPU."""
    has_gpu = any(path.exists() for path in GPU_DEVICES)
    return device.startswith("cuda") or (device == "auto" and has_gpu)


def worker_count(cores: int, on_gpu: bool) -> int:
    """Return the default number of workers: one per core, or one per CORES_PER_GPU_WORKER cores
    with a GPU; at most MAX_WORKERS."""
    return max(1, min(cores // (CORES_PER_GPU_WORKER if on_gpu else 1), MAX_WORKERS))


def available_cores() -> int:
    """Return the number of cores that this process may use: the minimum of its affinity, its CPU
    quota, rounded down, and ``OMP_NUM_THREADS`` if set."""
    cores: float = os.cpu_count() or 1
    if hasattr(os, "sched_getaffinity"):
        cores = min(len(os.sched_getaffinity(0)), _quota())
    threads = os.environ.get("OMP_NUM_THREADS", "").split(",")[0]
    if threads.isdecimal() and int(threads) > 0:
        cores = min(cores, int(threads))
    return max(1, int(cores))


def _quota() -> float:
    """Return the CPU quota of this process's control group (version 2) in cores, or infinity."""
    try:
        group = _OWN_GROUP.read_text().rpartition("::")[2].strip()
        limit, period = Path(f"{_GROUPS}{group}", "cpu.max").read_text().split()
        return int(limit) / int(period)
    except (OSError, ValueError):  # no group, or the limit "max"
        return math.inf


def load_network(model: str, device: str) -> EngineModel:
    """Load weights by name or path. ``device`` may be `auto`. Raises `model.storage.WeightsError`,
    or a torch error if the device does not exist."""
    from model import storage

    return storage.load(model, device=pick_device(device))


def check_device(device: str) -> None:
    """Raise ValueError if the device is a GPU that does not exist. Does not initialise CUDA."""
    import torch

    kind, _, number = device.partition(":")
    count = torch.cuda.device_count()
    if kind == "cuda" and int(number or 0) >= count:
        raise ValueError(f"{device!r} is not available (CUDA devices detected: {count})")


def pick_device(device: str) -> str:
    """Resolve `auto` to CUDA if it is available, else to the CPU. Return other names unchanged."""
    import torch

    if device != "auto":
        return device
    return "cuda" if torch.cuda.is_available() else "cpu"


def return_network(network: EngineModel, model: str, device: str) -> EngineModel:
    """Return ``network``. With `functools.partial` and a loaded network, this function replaces
    `load_network`."""
    return network
