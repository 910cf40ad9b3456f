"""Checkpoints: weights as safetensors, everything else as JSON beside them.

Nothing here unpickles. A checkpoint is two files, ``NAME.safetensors`` and ``NAME.json``; the
JSON ("card") holds the configuration under "config" and whatever training wants to say of the
weights: data, licences, metrics, note tracker thresholds. Both are written to temporary files,
flushed to disk and renamed, so that a full disk or a kill leaves the old checkpoint whole.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors import torch as safetensors_torch
from torch import Tensor

from model.config import ModelConfig
from model.precision import fastest_dtype
from model.transcriber import TranscriptionModel

WEIGHTS = Path(__file__).parent / "weights"


class WeightsError(ValueError):
    """A checkpoint that is missing, damaged or does not fit its configuration."""


def shipped() -> list[str]:
    """Names of the weights in this package."""
    return sorted(path.stem for path in WEIGHTS.glob("*.safetensors"))


def resolve(name_or_path: str | Path) -> Path:
    """The .safetensors file of a shipped name or a path. Raises WeightsError if absent."""
    path = Path(name_or_path)
    if path.suffix != ".safetensors":
        path = WEIGHTS / f"{name_or_path}.safetensors"
    if not path.is_file():
        raise WeightsError(f"no weights {name_or_path!r}; shipped: {', '.join(shipped())}")
    return path


def read_tensors(path: Path) -> dict[str, Tensor]:
    """All tensors of a safetensors file. Raises WeightsError if it is damaged."""
    try:
        return safetensors_torch.load(path.read_bytes())
    except (OSError, SafetensorError) as error:
        raise WeightsError(f"cannot read {path}: {error}") from error


def read_card(path: Path) -> dict[str, Any]:
    """The JSON beside a safetensors file."""
    try:
        card = json.loads(path.with_suffix(".json").read_text())
    except (OSError, ValueError) as error:
        raise WeightsError(f"cannot read the card of {path}: {error}") from error
    if not isinstance(card, dict) or "config" not in card:
        raise WeightsError(f"the card of {path} holds no configuration")
    return card


def load_weights(module: torch.nn.Module, tensors: Mapping[str, Tensor], origin: object) -> None:
    """Copies tensors of any float type into a module; names and shapes must match exactly."""
    expected = module.state_dict()
    missing = sorted(set(expected) - set(tensors))
    surplus = sorted(set(tensors) - set(expected))
    wrong = [k for k in expected if k in tensors and expected[k].shape != tensors[k].shape]
    if missing or surplus or wrong:
        raise WeightsError(
            f"{origin} does not fit its configuration: "
            f"missing {missing}, not expected {surplus}, other shapes {wrong}"
        )
    module.load_state_dict({k: tensors[k].to(expected[k].dtype) for k in expected})


def load(
    name_or_path: str | Path = "live",
    device: str | torch.device = "cpu",
    dtype: torch.dtype | None = None,
) -> TranscriptionModel:
    """A transcription network in evaluation mode. Raises WeightsError.

    dtype: what it computes in; None takes what is fastest on the device. To save the weights
    again, load them in float32.
    """
    path = resolve(name_or_path)
    card = read_card(path)
    try:
        config = ModelConfig.from_json(card["config"])
    except (KeyError, TypeError, ValueError) as error:
        raise WeightsError(f"{path} is not a network that transcribes: {error!r}") from error
    transcriber = TranscriptionModel(config, card)
    load_weights(transcriber, read_tensors(path), path)
    transcriber = transcriber.to(device).eval()
    return transcriber.compute_in(dtype or fastest_dtype(torch.device(device)))


def save_weights(
    module: torch.nn.Module, card: Mapping[str, Any], path: Path, half: bool = False
) -> None:
    """Writes weights and card; `half` stores floats as float16, for shipping."""
    tensors = {
        name: (tensor.half() if half and tensor.is_floating_point() else tensor).contiguous().cpu()
        for name, tensor in module.state_dict().items()
    }
    write_whole(path, safetensors_torch.save(tensors))
    write_whole(path.with_suffix(".json"), json.dumps(card, indent=1).encode())


def write_whole(path: Path, data: bytes) -> None:
    """Replaces a file's content entirely or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(path.name + ".partial")
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
