"""The files of a run: its log, and the state that it resumes from."""

import io
import json
import logging
import os
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import torch

from model.storage import WeightsError, write_whole

logger = logging.getLogger(__name__)


class MetricsLog:
    """Appends to a run's folder; every line is on disk when ``write`` returns."""

    def __init__(self, folder: Path, tensorboard: bool) -> None:
        """tensorboard: also write events for ``tensorboard --logdir``, if it is installed."""
        self.path = folder / "metrics.jsonl"
        self.events = _summary_writer(folder) if tensorboard else None

    def write(self, kind: str, step: int, seconds: float, values: Mapping[str, float]) -> None:
        """kind: "train" or "validation"; seconds: of training so far."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        line = {"kind": kind, "step": step, "hours": seconds / 3600, **values}
        with self.path.open("ab+") as file:
            _drop_half_line(file)
            file.write(json.dumps(line).encode() + b"\n")
        if self.events is not None:
            for name, value in values.items():
                self.events.add_scalar(f"{kind}/{name}", value, step)
            self.events.flush()


def _drop_half_line(file: BinaryIO) -> None:
    """Cuts off the part of a last line that a full disk or a killed run left at the file's end."""
    if file.tell():
        file.seek(-1, os.SEEK_END)
        if file.read() != b"\n":
            file.seek(0)
            file.truncate(file.read().rfind(b"\n") + 1)


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    """The lines of a run's metrics.jsonl. Raises OSError if missing, ValueError if damaged.

    A run that was killed and resumed wrote some steps twice; the later lines win. A last line
    without its end does not count: the disk was full, or the line is still being written.
    """
    path = folder / "metrics.jsonl"
    lines: dict[tuple[str, int], dict[str, Any]] = {}
    whole = path.read_text().rpartition("\n")[0]
    for number, text in enumerate(whole.splitlines(), start=1):
        try:
            line = json.loads(text)
            lines[line["kind"], line["step"]] = line
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{path}, line {number}: not a line of metrics: {error}") from error
    return sorted(lines.values(), key=lambda line: line["step"])


def saved_weights(folder: Path, which: str) -> Path:
    """The "best" or "last" weights of a run. Raises WeightsError if there are none yet."""
    path = folder / f"{which}.safetensors"
    if not path.is_file():
        raise WeightsError(f"{folder} holds no {path.name}: has the run saved yet?")
    return path


def _summary_writer(folder: Path) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter  # slow to import
    except ImportError:
        logger.warning("tensorboard is not installed: writing metrics.jsonl only")
        return None
    return SummaryWriter(str(folder / "tensorboard"))


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
