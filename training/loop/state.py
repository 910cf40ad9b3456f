"""The state of a run: everything needed to continue as if it had not been interrupted."""

import io
import json
import pickle
from pathlib import Path
from typing import Any

import torch

from model.storage import WeightsError, write_whole

STATE = "state.pt"  # weights, optimiser and random numbers of a run, to resume from


def write_state(folder: Path, state: dict[str, Any]) -> None:
    """Writes the state of a run, which includes ``config``, to its folder atomically."""
    buffer = io.BytesIO()
    torch.save({**state, "config": _jsonable(state["config"])}, buffer)
    write_whole(folder / STATE, buffer.getvalue())


def read_state(folder: Path, device: torch.device, config: Any) -> dict[str, Any]:
    """The state of the run in this folder.

    Raises WeightsError if it is missing, damaged or of another configuration.
    """
    path = folder / STATE
    if not path.is_file():
        raise WeightsError(f"nothing to resume: no {path}")
    try:
        state = torch.load(path, weights_only=True, map_location=device)
    except (OSError, EOFError, RuntimeError, pickle.UnpicklingError) as error:
        raise WeightsError(f"cannot read {path}: {error}") from error
    if not isinstance(state, dict):
        raise WeightsError(f"{path} is not the state of a run")
    theirs, ours = state.get("config"), _jsonable(config)
    if theirs is not None and theirs != ours:
        raise WeightsError(f"{folder} trains another configuration: {_differences(theirs, ours)}")
    return state


def _jsonable(values: Any) -> Any:
    """As read back from JSON, so that saved values compare equal."""
    return json.loads(json.dumps(values))


def _differences(theirs: Any, ours: Any, path: str = "") -> str:
    """The fields that differ between two configurations, with both values."""
    if isinstance(theirs, dict) and isinstance(ours, dict):
        names = [name for name in {**theirs, **ours} if theirs.get(name) != ours.get(name)]
        return ", ".join(
            _differences(theirs.get(name), ours.get(name), f"{path}.{name}".strip("."))
            for name in names
        )
    return f"{path} is {theirs!r} there and {ours!r} here"
