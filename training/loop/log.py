"""The log of a run: metrics.jsonl, and optionally TensorBoard events."""

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

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
        with self.path.open("a") as file:
            file.write(json.dumps(line) + "\n")
        if self.events is not None:
            for name, value in values.items():
                self.events.add_scalar(f"{kind}/{name}", value, step)
            self.events.flush()


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    """The lines of a run's metrics.jsonl. Raises OSError if missing, ValueError if damaged.

    A run that was killed and resumed wrote some steps twice; the later lines win.
    """
    path = folder / "metrics.jsonl"
    lines: dict[tuple[str, int], dict[str, Any]] = {}
    for number, text in enumerate(path.read_text().splitlines(), start=1):
        try:
            line = json.loads(text)
            lines[line["kind"], line["step"]] = line
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{path}, line {number}: not a line of metrics: {error}") from error
    return sorted(lines.values(), key=lambda line: line["step"])


def _summary_writer(folder: Path) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter  # slow to import
    except ImportError:
        logger.warning("tensorboard is not installed: writing metrics.jsonl only")
        return None
    return SummaryWriter(str(folder / "tensorboard"))
