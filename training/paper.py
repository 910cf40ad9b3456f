"""The paper's runs one after another: ``python -m training.paper --out runs/paper``.

Addition, sorting and multiplication with residual and gated units, then LAMBADA, at the paper's
sizes. One call trains for at most --minutes and stops; the next call continues there, so that
hours fit into short sessions. A finished run is measured once, and every call writes
OUT/results.md with the tables of what is finished. The exit status is 0 when all runs are, else 3.
"""

import json
import logging
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch

from model.commands import documented_parser
from model.storage import write_whole
from training.algorithmic import evaluate as algorithmic
from training.algorithmic.data import PROBLEMS
from training.lambada import evaluate as lambada
from training.lambada.passages import read_passages
from training.loop.parallel import leave
from training.loop.run_folder import STATE
from training.presets import LAMBADA_PRESETS, AlgorithmicRun, LambadaRun, algorithmic_presets
from training.run import make_trainer

UNFINISHED = 3  # exit status
RESULTS = "results.md"
REPORT = "report.md"  # of one finished run


@dataclass(frozen=True)
class Plan:
    """What to run and how much of it."""

    out: Path
    novels: Path | None = None
    """None leaves LAMBADA out."""
    development: Path | None = None
    test: Path | None = None
    rehearse: bool = False
    """Tiny networks and a few steps: tries the whole sequence without its results."""

    def runs(self) -> Iterator[AlgorithmicRun | LambadaRun]:
        """In the order in which they are trained."""
        for task in PROBLEMS:
            paper = algorithmic_presets(task)["paper"]
            rse = paper.algorithmic.rse
            for unit in ("residual", "gated"):
                config = replace(paper.algorithmic, rse=replace(rse, unit=unit))
                run = replace(paper, algorithmic=config, out=self.out / f"{task}_{unit}")
                yield _tiny_algorithmic(run) if self.rehearse else run
        if self.novels and self.development:
            paper_lambada = LAMBADA_PRESETS["gpu"]
            data = replace(paper_lambada.lambada, train=self.novels, validation=self.development)
            large = replace(paper_lambada, lambada=data, out=self.out / "lambada")
            yield _tiny_lambada(large) if self.rehearse else large


def advance(plan: Plan, minutes: float) -> bool:
    """Trains for at most `minutes`, measures what is finished; returns whether all runs are.

    Raises WeightsError where a folder holds another run, TextError for missing text.
    """
    end = time.monotonic() + 60 * minutes
    for run in plan.runs():
        report = run.out / REPORT
        if report.is_file():
            continue
        left = (end - time.monotonic()) / 60
        if left <= 0:
            return False
        resume = (run.out / STATE).is_file()
        loop = replace(run.loop, max_minutes=left)
        trainer = make_trainer(replace(run, loop=loop, resume=resume))
        trainer.run()
        if not trainer.done:
            return False
        write_whole(report, _measure(plan, run, trainer.seconds / 3600).encode())
    return True


def tables(plan: Plan) -> str:
    """Markdown with the tables of the finished runs, and the names of the others."""
    parts = ["# The paper's runs\n"]
    for run in plan.runs():
        report = run.out / REPORT
        text = report.read_text() if report.is_file() else "Not finished.\n"
        parts.append(f"## {run.out.name}\n\n{text}")
    return "\n".join(parts)


def _measure(plan: Plan, run: AlgorithmicRun | LambadaRun, hours: float) -> str:
    if isinstance(run, AlgorithmicRun):
        lengths, examples = algorithmic.LENGTHS, algorithmic.EXAMPLES
        if plan.rehearse:
            lengths, examples = lengths[:2], 4
        table = algorithmic.table(algorithmic.evaluate_run(run.out, "last", lengths, examples))
    else:
        file = plan.test or run.lambada.validation
        device = "cuda" if torch.cuda.is_available() else "cpu"
        reader = lambada.load_reader(run.out, "best", device)
        result = lambada.evaluate(reader, read_passages(file))
        write_whole(run.out / "lambada.json", json.dumps(asdict(result), indent=1).encode())
        table = lambada.table(result)
    return f"{hours:.2f} hours of training.\n\n{table}\n"


def _tiny_algorithmic(run: AlgorithmicRun) -> AlgorithmicRun:
    data = replace(
        run.algorithmic,
        rse=replace(run.algorithmic.rse, maps=8),
        bins=(8, 16),
        batch_size=2,
        examples_per_length=4,
        validation_examples=4,
    )
    return replace(run, algorithmic=data, loop=replace(run.loop, steps=4, validate_steps=2))


def _tiny_lambada(run: LambadaRun) -> LambadaRun:
    data = replace(
        run.lambada,
        rse=replace(run.lambada.rse, maps=8, blocks=1),
        cut=replace(run.lambada.cut, context=5, common=0),
        length=64,
        batch_size=2,
        validation_passages=4,
    )
    return replace(run, lambada=data, loop=replace(run.loop, steps=4, validate_steps=2))


def main(arguments: list[str] | None = None) -> int:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    parser = documented_parser("training.paper", __doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder of the runs")
    parser.add_argument("--minutes", type=float, default=10.0, help="of this call (%(default)g)")
    parser.add_argument("--novels", type=Path, help="archive or folder; without it no LAMBADA")
    parser.add_argument("--development", type=Path, help="LAMBADA's development passages")
    parser.add_argument("--test", type=Path, help="LAMBADA's test passages, for the table")
    parser.add_argument("--rehearse", action="store_true", help="tiny sizes, to try the sequence")
    options = parser.parse_args(arguments)
    # Apart, so that its reports do not count as the real runs'.
    out = options.out / "rehearsal" if options.rehearse else options.out
    plan = Plan(out, options.novels, options.development, options.test, options.rehearse)
    try:
        finished = advance(plan, options.minutes)
        text = tables(plan)
        write_whole(plan.out / RESULTS, text.encode())
        leave()
    except (ArithmeticError, OSError, ValueError) as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 1
    print(text)
    return 0 if finished else UNFINISHED


if __name__ == "__main__":
    sys.exit(main())
