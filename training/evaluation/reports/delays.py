"""Onset F1 against delay: ``python -m training.evaluation.reports.delays JSON... --out PNG``.

Each JSON comes from ``training.evaluate real``, with any look-aheads, block sizes and modes, all of
the same weights and recordings. The reports of one mode and block size make a line: for each
look-ahead a point at the median delay and a bar to the delay of 95 % of the notes, from a note's
sound to the newest sample of the recording that its note_on needed.
"""

import json
import sys
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from model.commands import documented_parser
from service.protocol.options import Mode
from training.music.metrics import DELAY_FIGURES


def read_reports(paths: Iterable[Path]) -> list[dict[str, Any]]:
    """All reports in some files.

    Raises:
        ValueError: a file holds no delays, or reports of other weights or recordings.
    """
    reports: list[dict[str, Any]] = []
    for path in paths:
        content = json.loads(path.read_text())
        for one in content.get("by_lookahead", [content]):
            mean = one.get("mean", {})
            if any(mean.get(name) is None for name in ("onset_f1", *DELAY_FIGURES)):
                raise ValueError(f"{path} has no onset F1 or no delays: is it from evaluate real?")
            reports.append(one)
            if _measured(one) != _measured(reports[0]):
                raise ValueError(f"{path} is of other weights, recordings or label shift")
    return reports


def _measured(report: dict[str, Any]) -> tuple[Any, ...]:
    return report["model"], report["label_shift_ms"], sorted(report["recordings"])


def plot(reports: list[dict[str, Any]], out: Path) -> Axes:
    """Writes the picture, a PNG or an SVG by its name: a line for each mode and block size."""
    lines: defaultdict[tuple[str, int], list[dict[str, Any]]] = defaultdict(list)
    for one in sorted(reports, key=lambda report: float(report["lookahead_ms"])):
        lines[one["mode"], one["block_frames"]].append(one)
    figure = Figure(figsize=(6.4, 4.0), layout="constrained")
    axes: Axes = figure.subplots()
    for (mode, block), points in sorted(lines.items()):
        middle, most = (np.array([one["mean"][name] for one in points]) for name in DELAY_FIGURES)
        f1 = [one["mean"]["onset_f1"] for one in points]
        star = mode == Mode.ANYTIME
        axes.errorbar(
            middle,
            f1,
            xerr=[0 * middle, most - middle],
            marker="*" if star else "o",
            markersize=11 if star else 5,
            capsize=3,
            elinewidth=0.8,
            linewidth=1,
            label=_name(mode, block),
            zorder=3 if star else 2,
        )
        for one, x, y in zip(points, middle, f1, strict=True):
            text = f"{one['lookahead_ms']:g}"
            axes.annotate(text, (x, y), (0, 6), textcoords="offset points", ha="center", size=7)
    axes.set(xlabel="delay of note_on, ms (median, bar to 95 %)", ylabel="onset F1")
    axes.set_xlim(left=0)
    axes.grid(alpha=0.3)
    axes.legend(title="numbers: look-ahead, ms", title_fontsize=8, fontsize=8, loc="lower right")
    count = len(reports[0]["recordings"])
    axes.set_title(f"{reports[0]['model']}, mean of {count} recordings", size=10)
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out, dpi=110)
    return axes


def _name(mode: str, block: int) -> str:
    kind = "fixed look-ahead" if mode == Mode.BLOCK else mode
    return f"{kind}, blocks of {'1 frame' if block == 1 else f'{block} frames'}"


def main(arguments: list[str] | None = None) -> int:
    parser = documented_parser("training.evaluation.reports.delays", __doc__)
    parser.add_argument("reports", nargs="+", type=Path, metavar="JSON")
    parser.add_argument("--out", type=Path, required=True, help="the picture, .png or .svg")
    options = parser.parse_args(arguments)
    try:
        plot(read_reports(options.reports), options.out)
    except (OSError, ValueError) as error:
        print(f"training.evaluation.reports.delays: {error}", file=sys.stderr)
        return 1
    print(options.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
