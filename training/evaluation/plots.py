"""Figures of runs: ``python -m training.evaluation.plots RUN_DIR... --out DIR``.

Of algorithmic runs error.png (validation error against optimiser step; paper, figures "RSE against
SE" and "ablation experiments"), generalisation.png (accuracy against length, of runs that
``training.algorithmic.evaluate`` has measured) and comparison.png (the smallest error of every
run). Of runs of the paper's MusicNet network window.png (average precision against window size;
paper, figure "various window sizes", table "convolutional layers"), and the same as a table on
standard output. A run is labelled with its folder's name.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from model.commands import documented_parser
from model.config import ModelConfig, StridedConfig
from model.storage import read_card
from training.algorithmic.data import BINS
from training.algorithmic.evaluate import RESULT
from training.loop.run_folder import read_metrics, saved_weights

PRECISION = "ap_middle"  # the metric of validation of the paper's MusicNet network
ERROR = "error"  # the metric of validation: wrong symbols on the longest training sequences
LEAST_ERROR = 1e-4  # an error of zero on a logarithmic axis

Runs = dict[str, Path]
Picture = tuple[str, Figure]


def algorithmic_figures(runs: Runs) -> Iterator[Picture]:
    """The figures that the runs have data for. Raises OSError or ValueError."""
    errors = {label: _history(folder, ERROR) for label, folder in runs.items()}
    figure, axes = _figure(xlabel="optimiser step", ylabel="wrong symbols", yscale="log")
    for label, points in errors.items():
        steps, values = zip(*points, strict=True)
        axes.plot(steps, np.maximum(values, LEAST_ERROR), marker=".", label=label)
    axes.set_ylim(top=1)
    axes.legend()
    yield "error.png", figure
    lengths: dict[str, list[dict[str, Any]]] = {
        label: json.loads((folder / RESULT).read_text())["scores"]
        for label, folder in runs.items()
        if (folder / RESULT).is_file()
    }
    if lengths:
        figure, axes = _figure(xlabel="length, symbols", ylabel="right symbols, %", ylim=(0, 102))
        for label, rows in lengths.items():
            percent = [100 * row["symbol_accuracy"] for row in rows]
            axes.plot([row["length"] for row in rows], percent, marker="o", label=label)
        axes.axvline(BINS[-1], color="grey", linestyle=":", label=f"trained up to {BINS[-1]}")
        axes.set_xscale("log", base=2)
        axes.legend()
        yield "generalisation.png", figure
    if len(runs) > 1:
        figure, axes = _figure(xlabel="wrong symbols at best", xscale="log")
        best = [min(error for _, error in points) for points in errors.values()]
        bars = axes.barh(list(errors), np.maximum(best, LEAST_ERROR))
        axes.bar_label(bars, [f" {100 * error:.2f} %" for error in best])
        axes.set_xlim(LEAST_ERROR / 2, 4)
        axes.invert_yaxis()
        yield "comparison.png", figure


def window_figure(runs: Runs) -> Iterator[Picture]:
    """A line for each number of convolutions; prints the table. Raises OSError or ValueError."""
    figure, axes = _figure(xlabel="window, samples", ylabel="average precision, %")
    print("| run | window | convolutions | steps | average precision |\n|---|---:|---:|---:|---:|")
    lines: dict[int, list[tuple[int, float]]] = {}
    for name, folder in runs.items():
        card = read_card(saved_weights(folder, "last"))
        front_end = ModelConfig.from_json(card["config"]).front_end
        if not isinstance(front_end, StridedConfig):
            raise ValueError(f"{folder} is no run of the paper's network")
        step, precision = _history(folder, PRECISION)[-1]
        window, count = front_end.window, front_end.convolutions
        lines.setdefault(count, []).append((window, 100 * precision))
        print(f"| {name} | {window} | {count} | {step:,} | {precision:.2%} |")
    for count, points in sorted(lines.items()):
        axes.plot(*zip(*sorted(points), strict=True), marker="o", label=f"{count} convolutions")
    axes.set_xscale("log", base=2)
    axes.legend()
    yield "window.png", figure


def _figure(**axis: Any) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(6.4, 4.0), layout="constrained")
    axes = figure.subplots()
    axes.set(**axis)
    axes.grid(alpha=0.3)
    return figure, axes


def _history(folder: Path, metric: str) -> list[tuple[int, float]]:
    """Step and metric of each validation of a run."""
    lines = [line for line in read_metrics(folder) if line["kind"] == "validation"]
    if not lines or any(metric not in line for line in lines):
        raise ValueError(f"{folder} has no validation with {metric!r}: what does it train?")
    return [(line["step"], line[metric]) for line in lines]


def main(arguments: list[str] | None = None) -> int:
    parser = documented_parser("training.evaluation.plots", __doc__)
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN_DIR")
    parser.add_argument("--out", type=Path, required=True, help="folder for the figures")
    options = parser.parse_args(arguments)
    runs: Runs = {path.resolve().name: path for path in options.runs}
    try:
        music = all(any(PRECISION in line for line in read_metrics(run)) for run in runs.values())
        options.out.mkdir(parents=True, exist_ok=True)
        for file, figure in (window_figure if music else algorithmic_figures)(runs):
            figure.savefig(options.out / file, dpi=150)
            print(options.out / file)
    except (OSError, ValueError) as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
