"""Weights by name or path."""

import os
import re

import torch

from model import storage
from model.transcriber import TranscriptionModel
from service.engine.runners import EngineModel

_computing: set[int] = set()  # this process, and those that it was forked from
_DEVICE = re.compile(r"cpu|cuda(:\d+)?")

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
    return storage.load(os.fspath(model), device=_device(device))


def loaded(model: Model, device: str) -> EngineModel:
    """The network that ``model=`` and ``device=`` ask for.

    Raises what ``load`` does, DeviceError for a network that is on another device, and
    RuntimeError in a process forked from one that has computed: torch's threads stayed there.
    """
    _computing.add(os.getpid())
    if len(_computing) > 1:
        raise RuntimeError(
            "a forked process cannot transcribe once its parent has: start processes by spawn "
            '(multiprocessing.get_context("spawn"))'
        )
    if isinstance(model, str | os.PathLike):
        return load(model, device)
    if not hasattr(model, "predict_features"):
        raise ValueError(f"a model is a name, a path or what load() returns, not {model!r:.60}")
    if device != "auto" and isinstance(model, torch.nn.Module):
        wanted, there = _device(device), next(model.parameters()).device
        if wanted.type != there.type or wanted.index not in (None, there.index):
            raise DeviceError(f"the model is on {there}, not on {wanted}: load(..., device=...)")
    return model


def _device(name: str) -> torch.device:
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if _DEVICE.fullmatch(str(name)) is None:  # or a torch.device
        raise DeviceError(f"a device is auto, cpu, cuda or cuda:N, not {name!r}")
    device = torch.device(name)
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:  # no such device; none in this build
        reason = str(error).partition("\n")[0]
        raise DeviceError(f"device {name!r} cannot be used: {reason}") from None
    return device
