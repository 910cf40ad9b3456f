"""Weights by name or path, or the best that this machine has time for."""

import os
import time
from concurrent.futures import ThreadPoolExecutor

import torch

from model import storage
from model.config import HOP
from model.transcriber import TranscriptionModel
from service.engine.load import available_cores, pick_device
from service.engine.runners import EngineModel, device_of, prepare_thread, runner_of, window_ms
from service.protocol.options import FILE_OPTIONS
from service.stream.windows import WindowSchedule

_owner: int | None = None  # the process that has begun to compute

AUTO = "auto"
BEST_FIRST = ("live", "light")
"""By the mean over the families of validation passages, read as files are: frame F1 .769 and .737,
onset F1 .753 and .713, onset + offset F1 .432 and .414. "accurate", .756, .740 and .444, is better
on pianos alone and takes three times as long (training/RESULTS.md)."""
MOST_OF_LENGTH = 0.25
"""Longest that ``AUTO`` lets computing take, as a part of the recording's length."""

Model = str | os.PathLike[str] | EngineModel
"""What transcribes: a shipped name, a path to .safetensors, or what ``load`` returned."""


class DeviceError(ValueError):
    """A device that torch does not know or does not have here."""


def available_models() -> list[str]:
    """Names of the weights in this package, for ``model=``."""
    return storage.shipped()


def load(model: str | os.PathLike[str] = "live", device: str = "auto") -> TranscriptionModel:
    """A network in evaluation mode, a ``torch.nn.Module``; give it as ``model=`` to use it again.

    Args:
        model: one of ``available_models()``, or the path of a .safetensors file with its card.
        device: ``cpu``, ``cuda``, ``cuda:N``, or ``auto``: CUDA if available.

    Raises:
        model.storage.WeightsError: a ValueError; no such weights, or damaged ones.
        DeviceError: a ValueError; no such device here.
    """
    device = pick_device(device)
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:  # no such device; none in this build
        reason = str(error).partition("\n")[0]
        raise DeviceError(f"device {device!r} cannot be used: {reason}") from None
    return storage.load(os.fspath(model), device=device)


def loaded(model: Model, device: str, auto: bool = False) -> EngineModel:
    """The network that ``model=`` and ``device=`` ask for; with ``auto`` AUTO is a model too.

    Raises what ``load`` and ``claim_process`` do.
    """
    claim_process()
    if auto and model == AUTO:
        return _best(device)
    if isinstance(model, str | os.PathLike):
        return load(model, device)
    if not hasattr(model, "predict_features"):
        raise ValueError(f"a model is a name, a path or what load() returns, not {model!r:.60}")
    return model


def claim_process() -> None:
    """Raises RuntimeError in a process forked from one that has computed: torch's threads, and
    those of a transcriber or a stream, stayed there, and nobody would answer."""
    global _owner
    if _owner not in (None, os.getpid()):
        raise RuntimeError(
            "a forked process cannot transcribe once its parent has: start processes by spawn "
            '(multiprocessing.get_context("spawn"))'
        )
    _owner = os.getpid()


def _best(device: str) -> TranscriptionModel:
    """The first of BEST_FIRST that takes at most MOST_OF_LENGTH; the last without measuring."""
    for name in BEST_FIRST[:-1]:
        network = load(name, device)
        if part_of_length(network) <= MOST_OF_LENGTH:
            return network
    return load(BEST_FIRST[-1], device)


def part_of_length(network: TranscriptionModel) -> float:
    """Time that a recording takes here, as a part of its length, by one of its windows; a GPU takes
    next to none. What else the machine does at the moment does not count."""
    if device_of(network).type != "cpu":
        return 0.0
    rate = network.config.sample_rate
    schedule = WindowSchedule.of(FILE_OPTIONS, network.config)
    with ThreadPoolExecutor(1, "measure", prepare_thread) as thread:
        measured = thread.submit(
            window_ms, runner_of(network), time.thread_time, schedule.positions
        )
    return measured.result() / 1000 * rate / HOP / schedule.block_frames / available_cores()
