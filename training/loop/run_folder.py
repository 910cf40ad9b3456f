"""The files of a run: metrics, weights, initial weights, and the state from which it resumes."""

import contextlib
import io
import json
import pickle
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from model.rse import BenesBlock
from model.storage import WeightsError, load, resolve, write_atomically
from model.transcriber import TranscriptionModel

METRICS = "metrics.jsonl"
STATE = "state.pt"  # weights, optimiser and random numbers of a run


def write_metrics(
    folder: Path, kind: str, step: int, seconds: float, values: Mapping[str, float]
) -> None:
    """Append a line. kind: "train" or "validation"; seconds: duration of the training so far."""
    folder.mkdir(parents=True, exist_ok=True)
    line = {"kind": kind, "step": step, "hours": seconds / 3600, **values}
    with (folder / METRICS).open("a") as file:
        file.write(json.dumps(line) + "\n")


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    """Read the lines of a run's metrics.jsonl. If a killed and resumed run wrote a step twice, the
    later line counts. Incomplete lines are ignored. Raises OSError if the file is missing."""
    lines: dict[tuple[str, int], dict[str, Any]] = {}
    for text in (folder / METRICS).read_text().splitlines():
        with contextlib.suppress(json.JSONDecodeError):
            line = json.loads(text)
            lines[line["kind"], line["step"]] = line
    return sorted(lines.values(), key=lambda line: line["step"])


def saved_weights(folder: Path, which: str) -> Path:
    """Return the "best" or "last" weights of a run. Raises WeightsError if there are none yet."""
    path = folder / f"{which}.safetensors"
    if not path.is_file():
        raise WeightsError(f"{folder} holds no {path.name}: has the run saved yet?")
    return path


@torch.no_grad()
def warm_start(network: TranscriptionModel, name_or_path: str | Path) -> list[dict[str, Any]]:
    """Copy weights into a network, which may have more heads and more Beneš blocks. New blocks
    start as the identity, so that the network first computes the same. Return the :func:`stages`
    of training of the weights. Raises WeightsError if the networks differ otherwise."""
    path = resolve(name_or_path)
    origin = load(path, dtype=torch.float32)
    theirs, ours = origin.config, network.config
    rse = replace(theirs.rse, blocks=ours.rse.blocks)
    if replace(theirs, name=ours.name, heads=ours.heads, rse=rse) != ours:
        raise WeightsError(f"{path} holds another kind of network than {ours.name!r}")
    if not set(theirs.heads) <= set(ours.heads):
        raise WeightsError(f"{path} has heads {theirs.heads}, the new network {ours.heads}")
    grows = ours.rse.blocks - theirs.rse.blocks
    if grows < 0:
        raise WeightsError(f"{path} has {-grows} more blocks than the new network")
    if grows and (rse.unit != "residual" or rse.residual_scale == "none"):
        raise WeightsError("only residual switch units can start as the identity")
    own = network.state_dict()  # shares its storage with the network
    for name, tensor in origin.state_dict().items():
        if own[name].shape == tensor.shape:  # the others belong to the heads, which follow
            own[name].copy_(tensor)
    rows = [ours.heads.index(head) for head in theirs.heads]
    for new, old in zip(network.network.by_head(), origin.network.by_head(), strict=True):
        new[rows] = old.to(new.device)
    for block in list(network.network.rse.blocks)[theirs.rse.blocks :]:
        assert isinstance(block, BenesBlock)
        block.make_identity()
    return stages(origin.card)


def stages(card: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the stages of training recorded in a card, in order. Each has "name", "steps",
    "batch_size", "hours", the peak "learning_rate" and "synth", the settings of its training
    audio."""
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


def write_state(folder: Path, state: dict[str, Any]) -> None:
    """Write the state of a run to its folder atomically."""
    buffer = io.BytesIO()
    torch.save(state, buffer)
    write_atomically(folder / STATE, buffer.getvalue())


def read_state(folder: Path, device: torch.device) -> dict[str, Any]:
    """Read the state of the run in this folder. Raises WeightsError if it is missing or corrupt."""
    path = folder / STATE
    if not path.is_file():
        raise WeightsError(f"nothing to resume: no {path}")
    try:
        state: dict[str, Any] = torch.load(path, weights_only=True, map_location=device)
    except (OSError, RuntimeError, ValueError, pickle.UnpicklingError) as error:
        raise WeightsError(f"cannot read {path}: {error}") from error
    return state
