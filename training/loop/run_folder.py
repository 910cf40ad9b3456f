"""The files of a run: its log, and the state that it resumes from."""

import contextlib
import io
import json
import pickle
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from model.storage import WeightsError, write_whole

METRICS = "metrics.jsonl"


def write_metrics(
    folder: Path, kind: str, step: int, seconds: float, values: Mapping[str, float]
) -> None:
    """Appends a line, on disk on return. kind: "train" or "validation"; seconds: of training."""
    folder.mkdir(parents=True, exist_ok=True)
    line = {"kind": kind, "step": step, "hours": seconds / 3600, **values}
    with (folder / METRICS).open("a") as file:
        file.write(json.dumps(line) + "\n")


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    """The lines of a run's metrics.jsonl. Raises OSError if missing. A run that was killed and
    resumed wrote some steps twice; the later lines win. Lines that a full disk or the kill cut off
    are passed over."""
    lines: dict[tuple[str, int], dict[str, Any]] = {}
    for text in (folder / METRICS).read_text().splitlines():
        with contextlib.suppress(json.JSONDecodeError):
            line = json.loads(text)
            lines[line["kind"], line["step"]] = line
    return sorted(lines.values(), key=lambda line: line["step"])


def saved_weights(folder: Path, which: str) -> Path:
    """The "best" or "last" weights of a run. Raises WeightsError if there are none yet."""
    path = folder / f"{which}.safetensors"
    if not path.is_file():
        raise WeightsError(f"{folder} holds no {path.name}: has the run saved yet?")
    return path


STATE = "state.pt"  # weights, optimiser and random numbers of a run, to resume from


def write_state(folder: Path, state: dict[str, Any]) -> None:
    """Writes the state of a run to its folder atomically."""
    buffer = io.BytesIO()
    torch.save(state, buffer)
    write_whole(folder / STATE, buffer.getvalue())


def read_state(folder: Path, device: torch.device) -> dict[str, Any]:
    """The state of the run in this folder. Raises WeightsError if it is missing or damaged."""
    path = folder / STATE
    if not path.is_file():
        raise WeightsError(f"nothing to resume: no {path}")
    try:
        with zipfile.ZipFile(path) as archive:
            if damaged := archive.testzip():  # torch does not compare the checksums
                raise zipfile.BadZipFile(f"{damaged} is damaged")
        state: dict[str, Any] = torch.load(path, weights_only=True, map_location=device)
    except (OSError, RuntimeError, ValueError, pickle.UnpicklingError, zipfile.BadZipFile) as error:
        raise WeightsError(f"cannot read {path}: {error}") from error
    return state
