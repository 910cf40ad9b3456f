"""Figures of runs: ``python -m training.evaluation.plots RUN_DIR... --out DIR``.

Of algorithmic runs error.png (validation error against optimiser step; paper, figures "RSE against
SE" and "ablation experiments"), generalisation.png (accuracy against length, of runs that
``training.algorithmic.evaluate`` has measured) and comparison.png (the smallest error of every
run). Of runs of the paper's MusicNet network window.png (average precision against window size;
paper, figure "various window sizes", table "convolutional layers"), and the same as a table on
standard output. A run is labelled with its folder's name, or with LABEL in ``LABEL=RUN_DIR``.
"""

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
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


def read_errors(folder: Path) -> list[tuple[int, float]]:
    """Step and error of each validation of an algorithmic run. Raises OSError or ValueError."""
    lines = [line for line in read_metrics(folder) if line["kind"] == "validation"]
    if not lines or any(ERROR not in line for line in lines):
        raise ValueError(f"{folder} has no validation with {ERROR!r}: is it an algorithmic run?")
    return [(line["step"], line[ERROR]) for line in lines]


def plot(runs: dict[str, Path], out: Path) -> list[Path]:
    """Draws the figures that the runs have data for; returns the files written."""
    errors = {label: read_errors(folder) for label, folder in runs.items()}
    lengths: dict[str, list[dict[str, Any]]] = {
        label: json.loads((folder / RESULT).read_text())["scores"]
        for label, folder in runs.items()
        if (folder / RESULT).is_file()
    }
    out.mkdir(parents=True, exist_ok=True)
    figure = Figure(figsize=(6.4, 4.0), layout="constrained")
    written = []

    def save(name: str) -> None:
        figure.savefig(out / name, dpi=150)
        figure.clear()
        written.append(out / name)

    axes = figure.subplots()
    for label, points in errors.items():
        steps, values = zip(*points, strict=True)
        axes.plot(steps, np.maximum(values, LEAST_ERROR), marker=".", label=label)
    axes.set(xlabel="optimiser step", ylabel="wrong symbols", yscale="log")
    axes.set_ylim(top=1)
    axes.grid(alpha=0.3)
    axes.legend()
    save("error.png")
    if lengths:
        axes = figure.subplots()
        for label, rows in lengths.items():
            percent = [100 * row["symbol_accuracy"] for row in rows]
            axes.plot([row["length"] for row in rows], percent, marker="o", label=label)
        axes.axvline(BINS[-1], color="grey", linestyle=":", label=f"trained up to {BINS[-1]}")
        axes.set(xlabel="length, symbols", ylabel="right symbols, %", ylim=(0, 102))
        axes.set_xscale("log", base=2)
        shown = sorted({row["length"] for rows in lengths.values() for row in rows})
        axes.set_xticks(shown, [str(length) for length in shown])
        axes.minorticks_off()
        axes.grid(alpha=0.3)
        axes.legend()
        save("generalisation.png")
    if len(runs) > 1:
        axes = figure.subplots()
        best = [min(error for _, error in points) for points in errors.values()]
        bars = axes.barh(list(errors), np.maximum(best, LEAST_ERROR))
        axes.bar_label(bars, [f" {100 * error:.2f} %" for error in best])
        axes.set(xlabel="wrong symbols at best", xscale="log", xlim=(LEAST_ERROR / 2, 4))
        axes.invert_yaxis()
        axes.grid(axis="x", alpha=0.3)
        save("comparison.png")
    return written


@dataclass(frozen=True)
class WindowRun:
    """What a run of the paper's MusicNet network came to."""

    window: int
    convolutions: int
    steps: int
    precision: float


def read_windows(folder: Path) -> WindowRun:
    """The last validation of a MusicNet run. Raises KeyError, OSError or ValueError."""
    card = read_card(saved_weights(folder, "last"))
    front_end = ModelConfig.from_json(card["config"]).front_end
    if not isinstance(front_end, StridedConfig):
        raise ValueError(f"{folder} is no run of the paper's network")
    lines = [line for line in read_metrics(folder) if PRECISION in line]
    last = lines[-1]
    return WindowRun(front_end.window, front_end.convolutions, last["step"], last[PRECISION])


def plot_windows(runs: dict[str, WindowRun], out: Path) -> list[Path]:
    """Draws average precision against window size, a line for each number of convolutions."""
    figure = Figure(figsize=(6.4, 4.0), layout="constrained")
    axes = figure.subplots()
    for count in sorted({run.convolutions for run in runs.values()}):
        points = sorted(
            (run.window, 100 * run.precision) for run in runs.values() if run.convolutions == count
        )
        axes.plot(*zip(*points, strict=True), marker="o", label=f"{count} convolutions")
    axes.set(xlabel="window, samples", ylabel="average precision, %")
    axes.set_xscale("log", base=2)
    axes.grid(alpha=0.3)
    axes.legend()
    out.mkdir(parents=True, exist_ok=True)
    figure.savefig(out / "window.png", dpi=150)
    print("| run | window | convolutions | steps | average precision |\n|---|---:|---:|---:|---:|")
    for name, run in runs.items():
        cells = (name, run.window, run.convolutions, f"{run.steps:,}", f"{run.precision:.2%}")
        print(f"| {' | '.join(map(str, cells))} |")
    return [out / "window.png"]


def is_musicnet(folder: Path) -> bool:
    """Whether a run's validations have the average precision of frames."""
    return any(PRECISION in line for line in read_metrics(folder))


def main(arguments: list[str] | None = None) -> int:
    parser = documented_parser("training.evaluation.plots", __doc__)
    parser.add_argument("runs", nargs="+", metavar="RUN_DIR", help="or LABEL=RUN_DIR")
    parser.add_argument("--out", type=Path, required=True, help="folder for the figures")
    options = parser.parse_args(arguments)
    runs: dict[str, Path] = {}
    for text in options.runs:
        label, equals, folder = text.rpartition("=")
        name = label if equals else Path(folder).resolve().name
        runs[text if name in runs else name] = Path(folder)
    try:
        if all(map(is_musicnet, runs.values())):
            windows = {name: read_windows(folder) for name, folder in runs.items()}
            paths = plot_windows(windows, options.out)
        else:
            paths = plot(runs, options.out)
    except (KeyError, OSError, ValueError) as error:
        print(f"training.evaluation.plots: {error}", file=sys.stderr)
        return 1
    print(*paths, sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
