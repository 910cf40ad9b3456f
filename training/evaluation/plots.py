"""Figures of training runs: ``python -m training.evaluation.plots RUN_DIR... --out DIR``.

Writes error.png (validation error against optimiser step; paper, figures "RSE against SE" and
"ablation experiments"), generalisation.png (accuracy against length, where
``training.algorithmic.evaluate`` has been run) and comparison.png (the smallest error of every
run). A run is labelled with its folder's name, or with LABEL in ``LABEL=RUN_DIR``.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from training.algorithmic.data import BINS
from training.algorithmic.evaluate import RESULT
from training.commands import documented_parser
from training.loop.log import read_metrics

ERROR = "error"  # the metric of validation that error.png shows
INCHES = (6.4, 4.0)
LEAST_ERROR = 1e-4  # an error of zero on a logarithmic axis


@dataclass(frozen=True)
class RunHistory:
    """The figures in a run's folder."""

    label: str
    steps: list[int]
    """Optimiser steps of the validations."""
    errors: list[float]
    """Fraction of wrong symbols on the longest training sequences."""
    lengths: list[dict[str, Any]]
    """The rows of generalisation.json, if any."""


def read_history(label: str, folder: Path) -> RunHistory:
    """Raises OSError or ValueError if the folder holds no algorithmic run."""
    lines = [line for line in read_metrics(folder) if line["kind"] == "validation"]
    if not lines or any(ERROR not in line for line in lines):
        raise ValueError(f"{folder} has no validation with {ERROR!r}: is it an algorithmic run?")
    result = folder / RESULT
    lengths = json.loads(result.read_text())["scores"] if result.is_file() else []
    return RunHistory(
        label, [line["step"] for line in lines], [line[ERROR] for line in lines], lengths
    )


def draw_error(axes: Axes, runs: list[RunHistory]) -> None:
    """Validation error against optimiser step."""
    for run in runs:
        shown = [max(LEAST_ERROR, error) for error in run.errors]
        axes.plot(run.steps, shown, marker=".", label=run.label)
    axes.set(xlabel="optimiser step", ylabel="wrong symbols", yscale="log")
    axes.set_ylim(top=1)
    axes.grid(alpha=0.3)
    axes.legend()


def draw_generalisation(axes: Axes, runs: list[RunHistory]) -> None:
    """Accuracy of symbols against length, with the longest length trained."""
    for run in runs:
        lengths = [row["length"] for row in run.lengths]
        axes.plot(
            lengths,
            [100 * row["symbol_accuracy"] for row in run.lengths],
            marker="o",
            label=run.label,
        )
    longest = sorted({row["length"] for run in runs for row in run.lengths})
    axes.axvline(BINS[-1], color="grey", linestyle=":", label=f"trained up to {BINS[-1]}")
    axes.set(xlabel="length, symbols", ylabel="right symbols, %", ylim=(0, 102))
    axes.set_xscale("log", base=2)
    axes.set_xticks(longest, [str(length) for length in longest])
    axes.minorticks_off()
    axes.grid(alpha=0.3)
    axes.legend()


def draw_comparison(axes: Axes, runs: list[RunHistory]) -> None:
    """Each run's smallest validation error, side by side."""
    best = [max(LEAST_ERROR, min(run.errors)) for run in runs]
    places = range(len(runs))
    bars = axes.barh(places, best)
    axes.bar_label(bars, [f" {100 * min(run.errors):.2f} %" for run in runs])
    axes.set(xlabel="wrong symbols at best", xscale="log", xlim=(LEAST_ERROR / 2, 4))
    axes.set_yticks(places, [run.label for run in runs])
    axes.invert_yaxis()
    axes.grid(axis="x", alpha=0.3)


def plot(runs: list[RunHistory], out: Path) -> list[Path]:
    """Draws the figures that the runs have data for; returns the files written."""
    out.mkdir(parents=True, exist_ok=True)
    figures = [("error.png", draw_error, runs)]
    measured = [run for run in runs if run.lengths]
    if measured:
        figures.append(("generalisation.png", draw_generalisation, measured))
    if len(runs) > 1:
        figures.append(("comparison.png", draw_comparison, runs))
    paths = []
    for name, draw, drawn in figures:
        figure = Figure(figsize=INCHES, layout="constrained")
        FigureCanvasAgg(figure)  # draws without a display
        draw(figure.subplots(), drawn)
        figure.savefig(out / name, dpi=150)
        paths.append(out / name)
    return paths


def main(arguments: list[str] | None = None) -> int:
    """Returns the exit status."""
    parser = documented_parser("training.evaluation.plots", __doc__)
    parser.add_argument("runs", nargs="+", metavar="RUN_DIR", help="or LABEL=RUN_DIR")
    parser.add_argument("--out", type=Path, required=True, help="folder for the figures")
    known = parser.parse_args(arguments)
    try:
        runs = [read_history(*split_label(text)) for text in known.runs]
        paths = plot(runs, known.out)
    except (KeyError, OSError, ValueError) as error:
        print(f"training.evaluation.plots: {error}", file=sys.stderr)
        return 1
    for path in paths:
        print(path)
    return 0


def split_label(text: str) -> tuple[str, Path]:
    """A run's label and folder, from RUN_DIR or LABEL=RUN_DIR."""
    label, equals, folder = text.partition("=")
    path = Path(folder if equals else text)
    return (label if equals else path.resolve().name), path


if __name__ == "__main__":
    sys.exit(main())
