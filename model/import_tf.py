"""Imports a TensorFlow checkpoint of the authors' released code.

``python -m model.import_tf CHECKPOINT_PREFIX OUT.safetensors`` reads CHECKPOINT_PREFIX.index and
its data, infers the network from the names and shapes of the variables, and writes OUT.safetensors
and its card, OUT.json. Every name and shape is verified. Transcription networks keep their
calibration and run in the service. Symbol networks run in ``python -m model.predict``.

The checkpoint that the authors published requires --fourier, because its input is the spectrum of
the window. The input of networks trained as in the paper is the waveform. --window is the number of
samples that the network was trained on. Names and shapes show neither.
"""

import re
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from model.commands import documented_parser
from model.config import RELEASED, RELEASED_RSE, ModelConfig, StridedConfig, Window
from model.storage import WeightsError, save_weights
from model.symbols import SymbolConfig, SymbolNetwork
from model.tf_checkpoint import read_checkpoint
from model.transcriber import TranscriptionModel

Shape = tuple[int, ...]

SLOTS = ("/RAdam", "/RAdam_1")  # the optimiser's momentum and mean square of a variable
STEPS = "Variable"  # number of training steps
LAMBADA_CLASSES = 3
ROOT = "var_lengths/"
_UNIT = {
    "z.weight": "cand1/c/CvK",
    "norm.bias": "norm/c/norm_bias/offset",
    "w.weight": "cand2/c/CvK",
    "w.bias": "cand2/c/CvB",
    "s": "residual",
}
_LINEAR = {"weight": "CvK", "bias": "CvB"}


def main(arguments: list[str] | None = None) -> int:
    parser = documented_parser("model.import_tf", __doc__)
    parser.add_argument("prefix", metavar="CHECKPOINT_PREFIX", help="path without .index")
    parser.add_argument("out", metavar="OUT.safetensors", type=Path)
    spectra = "the network's input is the spectrum, not the waveform"
    parser.add_argument("--fourier", action="store_true", help=spectra)
    sizes, text = get_args(Window), "samples that the network uses (%(default)s)"
    parser.add_argument("--window", type=int, choices=sizes, default=8192, help=text)
    options = parser.parse_args(arguments)
    try:
        if options.out.suffix != ".safetensors":
            raise WeightsError(f"{options.out} must end in .safetensors")
        prefix = options.prefix.removesuffix(".index")
        name, fourier, window = options.out.stem, options.fourier, options.window
        network, card = import_checkpoint(prefix, name, fourier, window)
        save_weights(network, card, options.out)
    except (WeightsError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(f"{options.out}: {card['task']}, {card['parameters']:,} parameters")
    return 0


def import_checkpoint(
    prefix: str | Path, name: str, fourier: bool = False, window: Window = 8192
) -> tuple[TranscriptionModel | SymbolNetwork, dict[str, Any]]:
    """Return the network in a checkpoint of the released code, and its card. Raises WeightsError if
    a file is missing or corrupt, or if a variable is unknown, missing, of an unexpected shape or
    type, or not finite. fourier, window: see ``StridedConfig``."""
    variables = read_checkpoint(prefix)
    try:
        shapes = {key: value.shape for key, value in variables.items()}
        network = build(shapes, name, fourier, window)
        trained = {key: as_tensor(key, variables[key]) for key in network_variables(shapes)}
    except ValueError as error:
        raise WeightsError(f"{prefix}: {error}") from error
    state = from_released(network, trained)
    network.load_state_dict(state, assign=True)
    task = "musicnet"
    if isinstance(network, SymbolNetwork):
        task = "lambada" if network.config.classes == LAMBADA_CLASSES else "algorithmic"
    card: dict[str, Any] = {
        "name": name,
        "task": task,
        "config": network.config.to_json(),
        "parameters": sum(value.numel() for value in state.values()),
        "source": {"tensorflow_checkpoint": Path(prefix).name},
    }
    if STEPS in variables and variables[STEPS].dtype.kind == "i":
        card["source"]["training_steps"] = int(variables[STEPS])
    return network.eval(), card


def build(
    shapes: Mapping[str, Shape], name: str, fourier: bool = False, window: Window = 8192
) -> TranscriptionModel | SymbolNetwork:
    """Return the network whose variables have these names and shapes, on the meta device. Raises
    the errors of ``infer_config``, and a WeightsError that lists all variables that do not fit."""
    config = infer_config(shapes, name, fourier, window)
    network: TranscriptionModel | SymbolNetwork
    with torch.device("meta"):
        if isinstance(config, ModelConfig):
            network = TranscriptionModel(config)
        else:
            network = SymbolNetwork(config)
    present, expected = network_variables(shapes), released_shapes(network)
    problems = [
        _mismatch(key, present.get(key), expected.get(key))
        for key in sorted(expected.keys() | present.keys())
        if present.get(key) != expected.get(key)
    ]
    if problems:
        raise WeightsError("not a network of the released code: " + "; ".join(problems))
    return network


def _mismatch(name: str, present: Shape | None, expected: Shape | None) -> str:
    if present is None:
        return f"{name} is missing"
    if expected is None:
        return f"unexpected variable {name}"
    return f"{name} has shape {present}, expected {expected}"


def network_variables(shapes: Mapping[str, Shape]) -> dict[str, Shape]:
    """Return only the network's variables. The other variables are used only in training: their
    names lack the prefix ROOT or end in one of SLOTS."""
    return {
        name: shape
        for name, shape in shapes.items()
        if name.startswith(ROOT) and not name.endswith(SLOTS)
    }


def infer_config(
    shapes: Mapping[str, Shape], name: str, fourier: bool = False, window: Window = 8192
) -> ModelConfig | SymbolConfig:
    """Return the configuration that names and shapes imply. Raises WeightsError, or another
    ValueError if a number is out of range."""
    maps, classes = _matrix(shapes, f"{ROOT}output/CvK")
    steps = f"{ROOT}steps_recursive/"
    blocks = sum(bool(re.fullmatch(rf"{steps}\d+_forward/residual", key)) for key in shapes)
    hidden = _matrix(shapes, f"{steps}last/cand1/c/CvK")[1]
    if not blocks or not maps or hidden % (2 * maps):
        raise WeightsError(
            f"not a Residual Shuffle-Exchange network: {blocks} blocks, {maps} maps and {hidden} "
            "hidden maps"
        )
    rse = replace(RELEASED_RSE, maps=maps, blocks=blocks, hidden_factor=hidden // (2 * maps))
    if f"{ROOT}embedding" in shapes:
        if fourier:
            raise WeightsError("symbol networks do not use spectra: omit --fourier")
        if window != 8192:
            raise WeightsError("symbol networks have no window: omit --window")
        vocabulary, width = _matrix(shapes, f"{ROOT}embedding")
        linear = any(key.startswith(f"{ROOT}embedding_linear/") for key in shapes)
        return SymbolConfig(vocabulary, classes, rse, word_features=width if linear else 0)
    # Kernels of convolutions have three dimensions. The linear map after them has two.
    kernels = [key for key, shape in shapes.items() if len(shape) == 3]
    convolutions = sum(bool(re.fullmatch(rf"{ROOT}pool1/conv\d+/CvK", key)) for key in kernels)
    front_end = StridedConfig(convolutions=convolutions, window=window, fourier=fourier)
    return replace(RELEASED, name=name, front_end=front_end, rse=rse)


def _matrix(shapes: Mapping[str, Shape], name: str) -> tuple[int, int]:
    """Return the shape of a required matrix. Raises WeightsError if it is missing or has another
    number of dimensions."""
    shape = shapes.get(name)
    if shape is None:
        raise WeightsError(f"not a network of the released code: {name} is missing")
    if len(shape) != 2:
        raise WeightsError(f"{name} has shape {list(shape)}, expected a matrix")
    return shape[0], shape[1]


def released_names(network: nn.Module) -> dict[str, str]:
    """Map each parameter name of a ``SymbolNetwork``, or of a ``TranscriptionModel`` with a strided
    front-end, to its name in the released code. Raises KeyError if there is none."""
    names = list(network.state_dict())
    convolutions = sum(".convolutions." in name for name in names)
    return {name: ROOT + _released_name(name, convolutions) for name in names}


def _released_name(name: str, convolutions: int) -> str:
    match name.removeprefix("network.").split("."):
        case ["rse", "blocks", block, half, *rest]:
            return f"steps_recursive/{block}_{half.removesuffix('_switch')}/{_UNIT['.'.join(rest)]}"
        case ["rse", "last", *rest]:
            return f"steps_recursive/last/{_UNIT['.'.join(rest)]}"
        case ["embedding", "weight"]:
            return "embedding"
        case ["embedding_linear" | "output" as layer, kind]:
            return f"{layer}/{_LINEAR[kind]}"
        case ["head", kind]:
            return f"output/{_LINEAR[kind]}"
        case ["front_end", "convolutions", i, "weight"]:
            return f"pool1/conv{int(i) + 1}/CvK"
        case ["front_end", "norms", i, "bias"]:
            return f"pool1/norm{int(i) + 1}/norm_bias/offset"
        case ["front_end", "linear", kind]:
            last = f"pool1/conv{convolutions + 1}" if convolutions else "output_conv"
            return f"{last}/{_LINEAR[kind]}"
        case ["scale" | "offset" as kind]:
            return f"corrected_result/{kind}"
    raise KeyError(f"the released code has no counterpart of {name!r}")


def from_released(
    network: nn.Module, variables: Mapping[str, torch.Tensor]
) -> dict[str, torch.Tensor]:
    """Return a state dict for `network` from the variables of the released code, which have the
    shapes of :func:`released_shapes`. Raises KeyError for a missing variable."""
    state = {}
    for name, released in released_names(network).items():
        value = torch.as_tensor(variables[released])
        if released.endswith("CvK"):  # (in, out) or (width, in, out); torch reverses the axes
            value = value.permute(*reversed(range(value.ndim))).contiguous()
        state[name] = value.flatten() if released.endswith("norm_bias/offset") else value
    return state


def released_shapes(network: nn.Module) -> dict[str, Shape]:
    """Return the released code's name and shape for each parameter of a network."""
    shapes, state = {}, network.state_dict()
    for name, released in released_names(network).items():
        shape = tuple(state[name].shape)
        if released.endswith("CvK"):
            shape = shape[::-1]
        elif released.endswith("norm_bias/offset"):
            shape = (1, 1, *shape)
        shapes[released] = shape
    return shapes


def as_tensor(name: str, value: NDArray) -> torch.Tensor:
    """Return a variable as float32. Raises WeightsError unless all values are finite floats."""
    if value.dtype.kind != "f":
        raise WeightsError(f"{name} has type {value.dtype}, expected a floating-point type")
    if not np.isfinite(value).all():
        raise WeightsError(f"{name} has values that are not finite")
    return torch.from_numpy(value.astype(np.float32, copy=False))


if __name__ == "__main__":
    sys.exit(main())
