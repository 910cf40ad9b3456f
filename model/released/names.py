"""Names and layouts of the authors' TensorFlow variables, and their counterparts here.

Their matrices are (in, out) and their convolution kernels (width, in, out); ours are (out, in)
and (out, in, width). Norm biases are stored with a leading [1, 1].
"""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

ROOT = "var_lengths/"

_UNIT = {
    "z.weight": "cand1/c/CvK",
    "norm.bias": "norm/c/norm_bias/offset",
    "w.weight": "cand2/c/CvK",
    "w.bias": "cand2/c/CvB",
    "s": "residual",
}


def released_names(network: nn.Module) -> dict[str, str]:
    """The released variable that corresponds to each parameter of a ``SymbolNetwork`` or of a
    ``TranscriptionModel`` with a strided front-end. Raises KeyError for parameters that the
    released code lacks."""
    names = list(network.state_dict())
    convolutions = sum(".convolutions." in name for name in names)
    return {name: _released_name(name, convolutions) for name in names}


def _released_name(name: str, convolutions: int) -> str:
    name = name.removeprefix("network.")
    match name.split("."):
        case ["rse", "blocks", block, half, *rest]:
            half = half.removesuffix("_switch")
            return f"{ROOT}steps_recursive/{block}_{half}/{_UNIT['.'.join(rest)]}"
        case ["rse", "last", *rest]:
            return f"{ROOT}steps_recursive/last/{_UNIT['.'.join(rest)]}"
        case ["embedding", "weight"]:
            return f"{ROOT}embedding"
        case ["embedding_linear" | "output" as layer, kind]:
            return f"{ROOT}{layer}/{_linear(kind)}"
        case ["head", kind]:
            return f"{ROOT}output/{_linear(kind)}"
        case ["front_end", "convolutions", i, "weight"]:
            return f"{ROOT}pool1/conv{int(i) + 1}/CvK"
        case ["front_end", "norms", i, "bias"]:
            return f"{ROOT}pool1/norm{int(i) + 1}/norm_bias/offset"
        case ["front_end", "linear", kind]:
            last = f"pool1/conv{convolutions + 1}" if convolutions else "output_conv"
            return f"{ROOT}{last}/{_linear(kind)}"
        case ["scale" | "offset" as kind]:
            return f"{ROOT}corrected_result/{kind}"
    raise KeyError(f"the released code has no counterpart of {name!r}")


def from_released(network: nn.Module, variables: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A state dict for `network` from the released code's variables, whose shapes are those of
    :func:`released_shapes`. Raises KeyError for a missing variable."""
    state = {}
    for name, theirs in released_names(network).items():
        value = torch.as_tensor(variables[theirs])
        if theirs.endswith("CvK"):
            value = value.permute(*reversed(range(value.ndim))).contiguous()
        state[name] = value.flatten() if theirs.endswith("norm_bias/offset") else value
    return state


def released_shapes(network: nn.Module) -> dict[str, tuple[int, ...]]:
    """Names and shapes of the released variables that correspond to a network's parameters."""
    shapes = {}
    ours = network.state_dict()
    for name, theirs in released_names(network).items():
        shape = tuple(ours[name].shape)
        if theirs.endswith("CvK"):
            shape = shape[::-1]
        elif theirs.endswith("norm_bias/offset"):
            shape = (1, 1, *shape)
        shapes[theirs] = shape
    return shapes


def _linear(kind: str) -> str:
    return {"weight": "CvK", "bias": "CvB"}[kind]
