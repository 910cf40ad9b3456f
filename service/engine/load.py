"""Load shipped weights, or a file, on the device that a worker uses.

torch is imported by the workers alone: it takes a second and 0.2 GB.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from service.engine.runners import EngineModel


def load_shipped(model: str, device: str) -> EngineModel:
    """Weights by name or path, either of which may be `auto`. Raises `model.storage.WeightsError`,
    or what torch raises if there is no such device."""
    from model import storage

    device = pick_device(device)
    return storage.load(pick_model(model, device), device=device)


def pick_device(device: str) -> str:
    """`auto` is CUDA if available, else the CPU."""
    import torch

    if device != "auto":
        return device
    return "cuda" if torch.cuda.is_available() else "cpu"


def pick_model(model: str, device: str) -> str:
    """`auto` is the best weights if the device multiplies bfloat16, else those of half the cost."""
    import torch

    from model.storage import fastest_dtype

    if model != "auto":
        return model
    return "live" if fastest_dtype(torch.device(device)) == torch.bfloat16 else "light"


def given(network: EngineModel, model: str, device: str) -> EngineModel:
    """A network that came with the question (`functools.partial`), whatever it asks for."""
    return network
