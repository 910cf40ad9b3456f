"""Plot training runs: ``python -m training.evaluation.plots RUN_DIR... --out DIR``.

For algorithmic tasks, error.png shows the validation error by optimiser step, and
generalisation.png the accuracy by length, if ``training.algorithmic.evaluate`` has measured it. For
the paper's MusicNet network, window.png shows the average precision by window size, with a line per
number of convolutions.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from model.commands import documented_parser
from model.storage import read_card
from training.algorithmic.evaluate import RESULT
from training.loop.run_folder import read_metrics, saved_weights

MIN_ERROR = 1e-4  # a logarithmic axis cannot show zero
AXES: dict[str, dict[str, Any]] = {
    "error.png": {"xlabel": "optimiser step", "ylabel": "wrong symbols", "yscale": "log"},
    "generalisation.png": {"xlabel": "length, symbols", "ylabel": "right symbols, %"},
    "window.png": {"xlabel": "window, samples", "ylabel": "average precision, %"},
}

Points = list[tuple[float, float]]


def lines_of(run: Path) -> Iterator[tuple[str, str, Points]]:
    """Yield the lines of a run: picture, label and points. Raises OSError or ValueError."""
    validations = [line for line in read_metrics(run) if line["kind"] == "validation"]
    label = run.resolve().name
    if validations and "error" in validations[0]:
        yield "error.png", label, [(v["step"], max(MIN_ERROR, v["error"])) for v in validations]
        if (run / RESULT).is_file():
            rows = json.loads((run / RESULT).read_text())["scores"]
            points = [(row["length"], 100 * row["symbol_accuracy"]) for row in rows]
            yield "generalisation.png", label, points
        return
    front_end = read_card(saved_weights(run, "last"))["config"].get("front_end", {})
    if not validations or front_end.get("kind") != "strided":
        raise ValueError(
            f"{run} is not a run of the paper's network or an algorithmic task with a validation"
        )
    point = front_end["window"], 100 * validations[-1]["ap_middle"]
    print(f"{label}: {point[1]:.2f} % after {validations[-1]['step']:,} steps")
    yield "window.png", f"{front_end['convolutions']} convolutions", [point]


def main(arguments: list[str] | None = None) -> int:
    parser = documented_parser("training.evaluation.plots", __doc__)
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN_DIR")
    parser.add_argument("--out", type=Path, required=True, help="folder for the figures")
    options = parser.parse_args(arguments)
    names = [run.resolve().name for run in options.runs]
    if len(set(names)) < len(names):
        parser.error("the folders of the runs must have different names, which label the lines")
    pictures: dict[str, dict[str, Points]] = {}
    try:
        for run in options.runs:
            for picture, label, points in lines_of(run):
                pictures.setdefault(picture, {}).setdefault(label, []).extend(points)
        options.out.mkdir(parents=True, exist_ok=True)
        for picture, lines in pictures.items():
            figure = Figure(figsize=(6.4, 4.0), layout="constrained")
            axes = figure.subplots()
            for label, points in sorted(lines.items()):
                axes.plot(*zip(*sorted(points), strict=True), marker=".", label=label)
            axes.set(**AXES[picture])
            if picture != "error.png":
                axes.set_xscale("log", base=2)
            axes.grid(alpha=0.3)
            axes.legend()
            figure.savefig(options.out / picture, dpi=150)
            print(options.out / picture)
    except (OSError, ValueError) as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
