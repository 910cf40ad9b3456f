"""Starting a run from existing weights, also in a larger network.

The network may have more Beneš blocks and heads than the weights. New blocks start as the identity,
so the larger network initially computes what the smaller one did. It may also be narrower: then it
keeps the most important channels and hidden features.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from model.config import FilterbankConfig, ModelConfig
from model.rse import BenesBlock
from model.storage import WeightsError, load, resolve
from model.transcriber import TranscriptionModel


@torch.no_grad()
def warm_start(network: TranscriptionModel, name_or_path: str | Path) -> list[dict[str, Any]]:
    """Copies weights into the network; returns the :func:`stages` of training behind them. Raises
    WeightsError if the networks differ in more than blocks, heads, look-ahead and widths, if the
    new one has fewer blocks or heads, or if it is wider."""
    path = resolve(name_or_path)
    origin = load(path, dtype=torch.float32)
    _check(origin.config, network.config, path)
    device = next(network.parameters()).device
    own = network.state_dict()  # shares its storage with the network
    moved = origin.config.front_end != network.config.front_end  # then the filters begin as new
    if isinstance(network.config.front_end, FilterbankConfig):
        origin = narrow(origin, network.config.front_end.channels, network.config.rse.hidden_factor)
    for name, tensor in origin.state_dict().items():
        if moved and "filterbank" in name:
            continue
        if own[name].shape == tensor.shape:  # else it is of the heads, which follow
            own[name].copy_(tensor)
    rows = [network.config.heads.index(head) for head in origin.config.heads]
    for new, old in zip(network.network.by_head(), origin.network.by_head(), strict=True):
        new[rows] = old.to(device)
    for block in list(network.network.rse.blocks)[origin.config.rse.blocks :]:
        assert isinstance(block, BenesBlock)
        block.make_identity()
    return stages(origin.card)


def stages(card: dict[str, Any]) -> list[dict[str, Any]]:
    """The stages of training recorded in a card, in order. Each has "name", "steps", "batch_size",
    "hours", the peak "learning_rate" and "synth", the settings of its training audio."""
    training = card.get("training")
    if training is None:
        return []
    data = card["data"]
    stage = {
        "name": card.get("name", ""),
        "steps": training["steps"],
        "batch_size": data["batch_size"],
        "hours": training["hours"],
        "learning_rate": training["loop"]["learning_rate"],
        "synth": data.get("synth"),
    }
    return [*training.get("earlier", []), stage]


def _check(theirs: ModelConfig, ours: ModelConfig, path: Path) -> None:
    front_end, rse = theirs.front_end, replace(theirs.rse, blocks=ours.rse.blocks)
    if isinstance(front_end, FilterbankConfig) and isinstance(ours.front_end, FilterbankConfig):
        channels = min(front_end.channels, ours.front_end.channels)
        front_end = replace(front_end, lookahead=ours.front_end.lookahead, channels=channels)
        rse = replace(rse, hidden_factor=min(rse.hidden_factor, ours.rse.hidden_factor))
    same = replace(theirs, name=ours.name, heads=ours.heads, front_end=front_end, rse=rse)
    if same != ours:
        raise WeightsError(f"{path} holds another kind of network than {ours.name!r}")
    if not set(theirs.heads) <= set(ours.heads):
        raise WeightsError(f"{path} has heads {theirs.heads}, the new network {ours.heads}")
    grows = ours.rse.blocks - theirs.rse.blocks
    if grows < 0:
        raise WeightsError(f"{path} has {-grows} more blocks than the new network")
    if grows and (ours.rse.unit != "residual" or ours.rse.residual_scale == "none"):
        raise WeightsError("only residual switch units can start as the identity")


CONVOLUTIONS = "network.convolutions."
EMBED, SKIP = "network.embed.weight", "network.skip.weight"


def narrow(network: TranscriptionModel, channels: int, hidden_factor: int) -> TranscriptionModel:
    """A filterbank network with at most so many channels, and hidden features for each feature of
    a pair of positions.

    Whole features are left out, those with the smallest weights on the way in and out (magnitude
    pruning: Li et al., "Pruning Filters for Efficient ConvNets", 2017). Further
    training restores the accuracy in a fraction of the time that random weights need.
    """
    config = network.config
    front_end = config.front_end
    assert isinstance(front_end, FilterbankConfig)
    front_end = replace(front_end, channels=min(front_end.channels, channels))
    rse = replace(config.rse, hidden_factor=min(config.rse.hidden_factor, hidden_factor))
    narrowed = TranscriptionModel(replace(config, front_end=front_end, rse=rse), network.card)
    tensors = network.state_dict()
    for into in [name for name in tensors if name.endswith(".z.weight")]:
        outof = into.removesuffix("z.weight") + "w.weight"
        z, w = tensors[into], tensors[outof]
        kept = largest(z.norm(dim=1) * w.norm(dim=0), rse.hidden_factor * 2 * rse.maps)
        tensors[into], tensors[outof] = z[kept], w[:, kept]
    _narrow_channels(tensors, front_end.channels)
    narrowed.load_state_dict(tensors)
    return narrowed


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
