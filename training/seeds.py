"""Train with several seeds: ``python -m training.seeds COUNT --out DIR TASK OPTION...``.

TASK and OPTION are arguments of ``training.run``. The run with seed i is in DIR/seed-i. The command
resumes runs that exist, and stops with an error if they have other options or if a run ends before
its last step. It prints the mean, standard deviation and range of each metric at the last step, and
writes them to DIR/seeds.json. Do not rank settings whose ranges overlap.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from model.commands import at_least, documented_parser
from model.storage import WeightsError, read_card, write_atomically
from training import run
from training.loop.run_folder import STATE, saved_weights


def summary(runs: Sequence[Mapping[str, float]]) -> dict[str, dict[str, float]]:
    """Return mean, sample standard deviation, minimum and maximum of every metric."""
    result = {}
    for name in runs[0]:
        values = np.array([metrics[name] for metrics in runs])
        deviation = float(values.std(ddof=1)) if len(values) > 1 else 0.0
        result[name] = {
            "mean": float(values.mean()),
            "deviation": deviation,
            "min": float(values.min()),
            "max": float(values.max()),
        }
    return result


def final_metrics(folder: Path) -> dict[str, float]:
    """Return the metrics of the validation at the last step of a run. Raises ValueError if the run
    did not stop at this step, or was interrupted before the validation."""
    card = read_card(saved_weights(folder, "last"))
    step, steps = card["training"]["steps"], card["training"]["loop"]["steps"]
    metrics: dict[str, float] = card["validation"]  # empty without a validation
    if step != steps or not metrics:
        raise ValueError(
            f"{folder}: unfinished run, stopped at step {step} of {steps}; repeat the command"
        )
    return metrics


def check_options(folder: Path, arguments: list[str]) -> None:
    """Raise WeightsError if the run in the folder has other options than these arguments of
    ``training.run``. Omitted options count too, because resuming would keep the saved ones."""
    if changes := run.changed_options(run.read_run(folder), run.parse(arguments)):
        raise WeightsError(
            f"{folder} contains a run with other options: {', '.join(changes)}; "
            "choose another --out"
        )


def main(arguments: list[str] | None = None) -> int:
    parser = documented_parser("training.seeds", __doc__)
    parser.add_argument("count", type=at_least(1), help="number of seeds")
    parser.add_argument("--out", type=Path, required=True, help="folder of the runs")
    options, command = parser.parse_known_args(arguments)
    if not command:
        parser.error("a task of training.run must follow")
    runs = []
    for seed in range(1, options.count + 1):
        folder = options.out / f"seed-{seed}"
        own = [*command, "--out", str(folder), "--loop.seed", str(seed)]
        try:
            if (folder / STATE).exists():
                check_options(folder, own)
                own.append("--resume")
            if status := run.main(own):
                return status
            runs.append(final_metrics(folder))
        except (OSError, ValueError) as error:
            parser.exit(1, f"{parser.prog}: {error}\n")
    result = summary(runs)
    print(f"| {options.count} seeds | mean | deviation | range |\n|---|---:|---:|---|")
    for name, row in result.items():
        span = f"{row['min']:.4f} to {row['max']:.4f}"
        print(f"| {name} | {row['mean']:.4f} | {row['deviation']:.4f} | {span} |")
    text = json.dumps({"command": command, "seeds": options.count, "metrics": result}, indent=1)
    write_atomically(options.out / "seeds.json", text.encode())
    return 0


if __name__ == "__main__":
    sys.exit(main())
