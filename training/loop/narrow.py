"""A network with fewer channels and hidden features than the weights that it starts from.

Whole features are left out, those with the smallest weights on the way in and out (magnitude
pruning: Li et al., "Pruning Filters for Efficient ConvNets", 2017). Training closes the wounds in a
fraction of the time that random weights need.
"""

from dataclasses import replace

import torch
from torch import Tensor

from model.config import FilterbankConfig
from model.transcriber import TranscriptionModel

CONVOLUTIONS = "network.convolutions."
EMBED, SKIP = "network.embed.weight", "network.skip.weight"


def narrow(network: TranscriptionModel, channels: int, hidden_factor: int) -> TranscriptionModel:
    """A filterbank network with at most so many channels, and hidden features for each feature of
    a pair of positions."""
    config = network.config
    front_end = config.front_end
    assert isinstance(front_end, FilterbankConfig)
    front_end = replace(front_end, channels=min(front_end.channels, channels))
    rse = replace(config.rse, hidden_factor=min(config.rse.hidden_factor, hidden_factor))
    narrowed = TranscriptionModel(replace(config, front_end=front_end, rse=rse), network.card)
    tensors = network.state_dict()
    for name in list(tensors):
        if name.endswith(".z.weight"):
            _narrow_unit(tensors, name.removesuffix("z.weight"), rse.hidden_factor * 2 * rse.maps)
    _narrow_channels(tensors, front_end.channels)
    narrowed.load_state_dict(tensors)
    return narrowed


def _narrow_unit(tensors: dict[str, Tensor], unit: str, hidden: int) -> None:
    """Keeps the hidden features of a switch unit that its output listens to most."""
    z, w = tensors[f"{unit}z.weight"], tensors[f"{unit}w.weight"]
    kept = largest(z.norm(dim=1) * w.norm(dim=0), hidden)
    tensors[f"{unit}z.weight"], tensors[f"{unit}w.weight"] = z[kept], w[:, kept]


def _narrow_channels(tensors: dict[str, Tensor], channels: int) -> None:
    """Keeps the channels that are loudest and that later layers listen to most; the convolutions
    are residual, so a channel is the same one in all of them."""
    wide = len(tensors[SKIP][0])
    norms = [n.removesuffix("running_mean") for n in tensors if n.endswith(".running_mean")]
    embed = tensors[EMBED].unflatten(1, (-1, wide))  # a cell's channels lie together
    layers = [n for n in tensors if n.startswith(f"{CONVOLUTIONS}layers.")]
    loud = sum(tensors[f"{n}weight"].square() + tensors[f"{n}bias"].square() for n in norms)
    heard = embed.square().sum(dim=(0, 1)) + tensors[SKIP].square().sum(dim=(0, 2, 3))
    heard = heard + sum(tensors[n].square().sum(dim=(0, 2, 3)) for n in layers)
    kept = largest(torch.as_tensor(loud * heard), channels)
    for norm in norms:
        for part in ("weight", "bias", "running_mean", "running_var"):
            tensors[norm + part] = tensors[norm + part][kept]
    for layer in layers:
        tensors[layer] = tensors[layer][kept][:, kept]
    stem = f"{CONVOLUTIONS}stem.weight"
    tensors[stem] = tensors[stem][kept]
    tensors[EMBED] = embed[..., kept].flatten(1)
    tensors[SKIP] = tensors[SKIP][:, kept]


def largest(importance: Tensor, count: int) -> Tensor:
    """Indices of the largest values, in ascending order."""
    return importance.topk(count).indices.sort().values
