"""Weights by name or path."""

from __future__ import annotations

import os
from functools import lru_cache

import torch

from model import storage
from model.transcriber import TranscriptionModel
from service.engine.engine import Transcriber as EngineModel

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
        device: ``cpu``, ``cuda``, ``cuda:N``, or ``auto``: CUDA where it is there.

    Raises:
        model.storage.WeightsError: a ValueError; no such weights, or damaged ones.
        DeviceError: a ValueError; no such device here.
    """
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:  # a word that is no device; none in this build
        reason = str(error).partition("\n")[0]
        raise DeviceError(f"device {device!r} cannot be used: {reason}") from None
    return storage.load(os.fspath(model), device=device)


@lru_cache(maxsize=2)
def _loaded(model: str, device: str) -> TranscriptionModel:
    return load(model, device)


def loaded(model: Model, device: str) -> EngineModel:
    """The network that ``model=`` and ``device=`` ask for; weights in use are read once."""
    return _loaded(os.fspath(model), device) if isinstance(model, str | os.PathLike) else model
