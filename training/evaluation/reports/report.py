"""Figures of many recordings as one report: means, intervals, breakdowns, tables to read."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from model.config import INSTRUMENTS
from training.evaluation.reports.breakdown import OCTAVES, POLYPHONY, Counts, pooled_figures
from training.music.metrics import (
    DEFINITIONS,
    DELAY_FIGURES,
    FIGURES,
    INSTRUMENT_FIGURES,
    VELOCITY_FIGURE,
)

Report = dict[str, Any]

RESAMPLES = 10_000
CONFIDENCE = 0.95


@dataclass
class Result:
    """The scores of one recording with one way of streaming."""

    figures: dict[str, float]
    """FIGURES, DELAY_FIGURES and perhaps VELOCITY_FIGURE and INSTRUMENT_FIGURES."""
    onset_errors_s: NDArray[np.float64]
    """Delays of matched onsets."""
    octaves: Counts | None = None
    polyphony: Counts | None = None
    confusion: NDArray[np.int64] | None = None
    """Notes by labelled and predicted instrument; None if unknown."""


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

    ``recordings`` holds the figures of each, ``mean`` and ``interval`` those over recordings,
    ``octaves`` and ``polyphony`` scores pooled over recordings; ``confusion`` the notes of each
    labelled instrument by the predicted one, if known.
    """
    names = [*FIGURES, VELOCITY_FIGURE, *INSTRUMENT_FIGURES, *DELAY_FIGURES]
    values = {
        name: [r.figures[name] for r in results.values() if name in r.figures] for name in names
    }
    values = {name: found for name, found in values.items() if found}
    late = 1000 * np.concatenate([np.zeros(0), *(r.onset_errors_s for r in results.values())])
    return {
        "recordings": {name: _plain(result.figures) for name, result in results.items()},
        "mean": _plain({name: _mean(found) for name, found in values.items()}),
        "interval": {name: interval(found) for name, found in values.items()},
        "onset_error_ms": _spread(late),
        "octaves": pooled_figures(OCTAVES, (r.octaves for r in results.values())),
        "polyphony": pooled_figures(POLYPHONY, (r.polyphony for r in results.values())),
        "confusion": named_confusion(confusion_of(results)),
        "definitions": {name: DEFINITIONS[name] for name in values},
    }


def confusion_of(results: Mapping[str, Result]) -> NDArray[np.int64]:
    """[classes, classes], over all recordings."""
    nothing = np.zeros((len(INSTRUMENTS), len(INSTRUMENTS)), np.int64)
    return sum((r.confusion for r in results.values() if r.confusion is not None), nothing)


def named_confusion(counts: NDArray[np.int64]) -> dict[str, dict[str, int]]:
    """The counts that are above 0, by the names of the classes."""
    return {
        played: {found: n for found, n in zip(INSTRUMENTS, row.tolist(), strict=True) if n}
        for played, row in zip(INSTRUMENTS, counts, strict=True)
        if row.any()
    }


def tables(report: Report) -> str:
    """The means with their intervals, the timing and both breakdowns, as text."""
    mean, intervals = report["mean"], report["interval"]
    lines = ["", f"{'':24}{'mean':>8}    95 % interval over {len(report['recordings'])} recordings"]
    for name, value in mean.items():
        ends = intervals[name]
        between = f"{ends[0]:.3f} to {ends[1]:.3f}" if ends else "-"
        lines.append(f"{name:24}{_cell(value):>8}    {between}")
    timing = report["onset_error_ms"]
    if timing["median"] is not None:
        low, high = timing["quartiles"]
        lines.append(f"matched onsets: {timing_words(low, timing['median'], high)}")
    for title in ("octaves", "polyphony"):
        columns = ("notes", "frame_ap", "frame_f1", "onset_recall", "onset_precision", "onset_f1")
        lines += ["", f"{title:16}" + "".join(f"{column:>17}" for column in columns)]
        for name, row in report[title].items():
            lines.append(f"{name:16}" + "".join(f"{_cell(row[c]):>17}" for c in columns))
    return "\n".join(lines)


def timing_words(low: float, median: float, high: float) -> str:
    """Of the delays of matched onsets, in ms, with their quartiles."""
    spread = f"half of them from {low:+.1f} to {high:+.1f} ms"
    return f"{median:+.1f} ms in the median (positive: late), {spread}"


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


def _spread(values: NDArray[np.float64]) -> dict[str, Any]:
    if not len(values):
        return {"median": None, "quartiles": None, "deviation": None}
    low, median, high = (float(value) for value in np.percentile(values, [25, 50, 75]))
    return {"median": median, "quartiles": [low, high], "deviation": float(np.std(values))}
