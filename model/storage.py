"""Weights on disk: tensors in ``NAME.safetensors``, and a card in ``NAME.json`` next to them.

The card contains the configuration under "config", and facts about the training: data, licences,
metrics, note tracker settings. Nothing is unpickled. Files are replaced atomically.
"""

import json
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors import torch as safetensors_torch
from torch import Tensor

from model.commands import replace_file as replace_file
from model.commands import write_atomically as write_atomically
from model.config import ModelConfig
from model.transcriber import TranscriptionModel

WEIGHTS = Path(__file__).parent / "weights"
_building = threading.Lock()


class WeightsError(ValueError):
    """The weights are missing, corrupt, or do not match their configuration."""


def shipped() -> list[str]:
    """Return the names of the weights that ship with this package."""
    return sorted(path.stem for path in WEIGHTS.glob("*.safetensors"))


def resolve(name_or_path: str | Path) -> Path:
    """Return the .safetensors file of a shipped name or path. Raises WeightsError if missing."""
    path = Path(name_or_path)
    if path.suffix != ".safetensors":
        path = WEIGHTS / f"{name_or_path}.safetensors"
    if not path.is_file():
        raise WeightsError(f"no weights {str(name_or_path)!r}; shipped: {', '.join(shipped())}")
    return path


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Read all tensors of a safetensors file. Raises WeightsError if it cannot be read."""
    try:
        return safetensors_torch.load(path.read_bytes())
    except (OSError, SafetensorError) as error:
        raise WeightsError(f"cannot read {path}: {error}") from error


def read_card(path: Path) -> dict[str, Any]:
    """Return the JSON next to a safetensors file. Raises WeightsError if it cannot be read or has
    no configuration."""
    try:
        card = json.loads(path.with_suffix(".json").read_text())
    except (OSError, ValueError) as error:
        raise WeightsError(f"cannot read the card of {path}: {error}") from error
    if not isinstance(card, dict) or "config" not in card:
        raise WeightsError(f"the card of {path} has no configuration")
    return card


def load_weights(module: torch.nn.Module, tensors: Mapping[str, Tensor], origin: object) -> None:
    """Copy tensors of any float type into a module. Raises WeightsError unless names and shapes
    match exactly."""
    expected = module.state_dict()
    missing = sorted(set(expected) - set(tensors))
    surplus = sorted(set(tensors) - set(expected))
    wrong = [k for k in expected if k in tensors and expected[k].shape != tensors[k].shape]
    if missing or surplus or wrong:
        raise WeightsError(
            f"{origin} does not fit its configuration: "
            f"missing {missing}, unexpected {surplus}, wrong shape {wrong}"
        )
    module.load_state_dict({k: tensors[k].to(expected[k].dtype) for k in expected})


def load(
    name_or_path: str | Path = "live",
    device: str | torch.device = "cpu",
    dtype: torch.dtype | None = None,
) -> TranscriptionModel:
    """Load a transcription network in evaluation mode. Raises WeightsError.

    dtype: type of matrices, kernels and their products, independent of the type in the file
    (shipped weights: float16). None means bfloat16 if the device supports it natively, else
    float32. Filters, norms and probabilities are always float32. Use float32 to train the network
    or to save it again.
    """
    path = resolve(name_or_path)
    card = read_card(path)
    try:
        config = ModelConfig.from_json(card["config"])
        with _building, torch.random.fork_rng(devices=()):  # preserves the caller's random state
            transcriber = TranscriptionModel(config, card)
    except (KeyError, TypeError, ValueError) as error:
        raise WeightsError(f"{path} is not a transcription network: {error!r}") from error
    load_weights(transcriber, read_tensors(path), path)
    transcriber = transcriber.to(device).eval()
    return transcriber.compute_in(dtype or fastest_dtype(torch.device(device)))


def save_weights(
    module: torch.nn.Module, card: Mapping[str, Any], path: Path, half: bool = False
) -> None:
    """Write the weights and their card. half: True to store floats as float16, for shipping."""
    tensors = {
        name: (tensor.half() if half and tensor.is_floating_point() else tensor).contiguous().cpu()
        for name, tensor in module.state_dict().items()
    }
    write_atomically(path, safetensors_torch.save(tensors))
    write_atomically(path.with_suffix(".json"), json.dumps(card, indent=1).encode())


def fastest_dtype(device: torch.device) -> torch.dtype:
    """Return bfloat16 if the device supports it natively, else float32. Emulated bfloat16 is slower
    than float32. ``ATEN_CPU_CAPABILITY`` can limit torch to instructions without bfloat16."""
    match device.type:
        case "cuda":
            native = torch.cuda.is_bf16_supported(including_emulation=False)
        case "cpu":
            capabilities = torch.cpu.get_capabilities()
            native = any(capabilities.get(name) for name in ("avx512_bf16", "amx_bf16"))
            native = native and torch.backends.cpu.get_cpu_capability() not in ("AVX2", "DEFAULT")
        case _:
            native = False
    return torch.bfloat16 if native else torch.float32
