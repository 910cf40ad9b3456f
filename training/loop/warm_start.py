"""Starting a run from existing weights, also in a larger network.

The network may have more Beneš blocks and heads than the weights. New blocks start as the identity,
so the larger network initially computes what the smaller one did. It may also be narrower: then it
keeps the most important channels and hidden features.
"""

import dataclasses
from pathlib import Path
from typing import Any

import torch

from model.config import FilterbankConfig, ModelConfig
from model.rse import BenesBlock
from model.storage import WeightsError, load, resolve
from model.transcriber import TranscriptionModel
from training.loop.narrow import narrow


@torch.no_grad()
def warm_start(network: TranscriptionModel, name_or_path: str | Path) -> list[dict[str, Any]]:
    """Copies weights into the network; returns the :func:`stages` of training behind them.

    Raises WeightsError if the networks differ in more than blocks, heads, look-ahead, history and
    widths, if the new one has fewer blocks or heads, or if it is wider.
    """
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
    """The stages of training recorded in a card, in order.

    Each has "name", "steps", "batch_size", "hours", the peak "learning_rate" and "synth", the
    settings of its training audio.
    """
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
    front_end, hidden_factor = theirs.front_end, theirs.rse.hidden_factor
    if isinstance(front_end, FilterbankConfig) and isinstance(ours.front_end, FilterbankConfig):
        front_end = dataclasses.replace(
            front_end,
            lookahead=ours.front_end.lookahead,
            history=ours.front_end.history,
            channels=min(front_end.channels, ours.front_end.channels),
        )
        hidden_factor = min(hidden_factor, ours.rse.hidden_factor)
    same = dataclasses.replace(
        theirs,
        name=ours.name,
        heads=ours.heads,
        front_end=front_end,
        rse=dataclasses.replace(theirs.rse, blocks=ours.rse.blocks, hidden_factor=hidden_factor),
    )
    if same != ours:
        raise WeightsError(f"{path} holds another kind of network than {ours.name!r}")
    if not set(theirs.heads) <= set(ours.heads):
        raise WeightsError(f"{path} has heads {theirs.heads}, the new network {ours.heads}")
    grows = ours.rse.blocks - theirs.rse.blocks
    if grows < 0:
        raise WeightsError(f"{path} has {-grows} more blocks than the new network")
    if grows and (ours.rse.unit != "residual" or ours.rse.residual_scale == "none"):
        raise WeightsError("only residual switch units can start as the identity")
