"""Figures of many recordings as one report: means with their intervals, tables to read."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from training.music.metrics import DEFINITIONS

Report = dict[str, Any]

RESAMPLES = 10_000
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Result:
    """The scores of one recording with one way of streaming."""

    figures: dict[str, float]
    """Some of ``metrics.DEFINITIONS``."""
    onset_errors_s: NDArray[np.float64]
    """Delays of matched onsets."""


def interval(values: Sequence[float]) -> tuple[float, float] | None:
    """95 % bootstrap interval of the mean over recordings; None for fewer than two.

    Percentiles of the means of RESAMPLES draws with replacement; the same values give the same
    interval. NaN are left out.
    """
    known = np.array(values)
    known = known[np.isfinite(known)]
    if len(known) < 2:
        return None
    draws = np.random.default_rng(0).integers(len(known), size=(RESAMPLES, len(known)))
    tail = 50 * (1 - CONFIDENCE)
    low, high = np.percentile(known[draws].mean(axis=1), [tail, 100 - tail])
    return float(low), float(high)


def report(results: Mapping[str, Result]) -> Report:
    """Plain values for JSON; NaN become None.

    ``recordings`` holds the figures of each, ``mean`` and ``interval`` those over recordings.
    """
    values = {
        name: [r.figures[name] for r in results.values() if name in r.figures]
        for name in DEFINITIONS
    }
    values = {name: found for name, found in values.items() if found}
    late_ms = 1000 * np.concatenate([np.zeros(0), *(r.onset_errors_s for r in results.values())])
    low, median, high = (
        np.percentile(late_ms, [25, 50, 75]).tolist() if len(late_ms) else 3 * [None]
    )
    return {
        "recordings": {name: _plain(result.figures) for name, result in results.items()},
        "mean": _plain({name: _mean(found) for name, found in values.items()}),
        "interval": {name: interval(found) for name, found in values.items()},
        "onset_error_ms": {"median": median, "quartiles": [low, high]},
        "definitions": {name: DEFINITIONS[name] for name in values},
    }


def table(report: Report) -> str:
    """The means with their intervals and the timing, as text."""
    lines = ["", f"{'':24}{'mean':>8}    95 % interval over {len(report['recordings'])} recordings"]
    for name, value in report["mean"].items():
        ends = report["interval"][name]
        between = f"{ends[0]:.3f} to {ends[1]:.3f}" if ends else "-"
        lines.append(f"{name:24}{_cell(value):>8}    {between}")
    timing = report["onset_error_ms"]
    if timing["median"] is not None:
        low, high = timing["quartiles"]
        lines.append(
            f"matched onsets: {timing['median']:+.1f} ms in the median (positive: late), "
            f"half of them from {low:+.1f} to {high:+.1f} ms"
        )
    return "\n".join(lines)


def row(name: str, lookahead: str, figures: Mapping[str, Any]) -> str:
    """One recording's line; give the names of the figures for the line above all."""
    cells = [figures.get(name, "") for name in DEFINITIONS]
    return f"{name:34}{lookahead:>10}" + "".join(f"{_cell(cell):>22}" for cell in cells)


def _cell(value: object) -> str:
    if value is None or (isinstance(value, float) and not np.isfinite(value)):
        return "-"
    return f"{value:.3f}" if isinstance(value, float) else str(value)


def _mean(values: Sequence[float]) -> float:
    known = [value for value in values if np.isfinite(value)]
    return float(np.mean(known)) if known else float("nan")


def _plain(figures: Mapping[str, float]) -> dict[str, float | None]:
    return {name: value if np.isfinite(value) else None for name, value in figures.items()}
