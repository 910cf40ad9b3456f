"""The files of a run: metrics, weights, and the state from which a run resumes."""

import contextlib
import json
import os
import pickle
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from model.storage import WeightsError, load, resolve
from model.transcriber import TranscriptionModel

METRICS = "metrics.jsonl"
STATE = "state.pt"  # weights, optimiser state and random state of a run


def write_metrics(
    folder: Path, kind: str, step: int, seconds: float, values: Mapping[str, float]
) -> None:
    """Append a line to metrics.jsonl. If the last line is incomplete, as after a full disk, end it
    first.

    Args:
        kind: "train" or "validation".
        seconds: duration of the training so far.
    """
    folder.mkdir(parents=True, exist_ok=True)
    line = {"kind": kind, "step": step, "hours": seconds / 3600, **values}
    with (folder / METRICS).open("ab+") as file:
        if file.tell():
            file.seek(-1, os.SEEK_END)
            if file.read() != b"\n":
                file.write(b"\n")
        file.write(json.dumps(line).encode() + b"\n")


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    """Return the lines of a run's metrics.jsonl, sorted by step. If a killed and resumed run wrote
    a step twice, the later line is used. Incomplete lines are ignored. Raises OSError."""
    lines: dict[tuple[str, int], dict[str, Any]] = {}
    for text in (folder / METRICS).read_text().splitlines():
        with contextlib.suppress(json.JSONDecodeError):
            line = json.loads(text)
            lines[line["kind"], line["step"]] = line
    return sorted(lines.values(), key=lambda line: line["step"])


def saved_weights(folder: Path, which: str) -> Path:
    """Return the path of the "best" or "last" weights of a run. Raises WeightsError if missing."""
    path = folder / f"{which}.safetensors"
    if not path.is_file():
        raise WeightsError(
            f"{folder} contains no {path.name}: the run has not saved these weights yet"
        )
    return path


@torch.no_grad()
def warm_start(network: TranscriptionModel, name_or_path: str | Path) -> list[dict[str, Any]]:
    """Copy weights into a network, which may have more heads. Return the :func:`stages` of training
    of the weights. Raises WeightsError if the weights cannot be loaded or the networks differ in
    any other way."""
    path = resolve(name_or_path)
    origin = load(path, dtype=torch.float32)
    old, new = origin.config, network.config
    if replace(old, name=new.name, heads=new.heads) != new:
        raise WeightsError(f"{path} contains another kind of network than {new.name!r}")
    if missing := [head for head in old.heads if head not in new.heads]:
        raise WeightsError(f"{path} has heads that the new network lacks: {', '.join(missing)}")
    state = network.state_dict()  # shares its storage with the network
    for name, tensor in origin.state_dict().items():
        if state[name].shape == tensor.shape:  # other shapes belong to the heads, copied below
            state[name].copy_(tensor)
    rows = [new.heads.index(head) for head in old.heads]
    for target, source in zip(network.network.by_head(), origin.network.by_head(), strict=True):
        target[rows] = source.to(target.device)
    return stages(origin.card)


def stages(card: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the stages of training that a card lists, in order. Each has "name", "steps",
    "batch_size", "hours", "learning_rate" (the peak), "synth", the settings of its audio, and,
    until ``training.shipping.card.with_sources`` collects them, "sources"."""
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
        "sources": card.get("sources", {}),
    }
    return [*training.get("earlier", []), stage]


def read_state(folder: Path) -> dict[str, Any]:
    """Read the state of the run in this folder. Raises WeightsError if it is missing or corrupt."""
    path = folder / STATE
    if not path.is_file():
        raise WeightsError(f"nothing to resume: {path} does not exist")
    try:
        state: dict[str, Any] = torch.load(path, weights_only=True, map_location="cpu")
    except (EOFError, OSError, RuntimeError, ValueError, pickle.UnpicklingError) as error:
        raise WeightsError(f"cannot read {path}: {error}") from error
    return state
