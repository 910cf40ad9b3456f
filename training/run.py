"""Train a network.

    python -m training.run musicnet --preset live --out runs/live
    python -m training.run musicnet --preset paper --data musicnet --data-dir DIR --out runs/paper
    python -m training.run algorithmic --task sorting --preset laptop --out runs/sorting

Every field of a preset can be overridden, for example --loop.minutes 10 --algorithmic.rse.maps 96;
--help-all lists them with their units. The run's folder receives the last and the best
weights, the state of the run and metrics.jsonl. --max-minutes stops and saves in time, and --resume
continues, so long training fits into short sessions; Ctrl-C saves too, without validating.

On several GPUs or machines: torchrun --nproc-per-node 4 -m training.run ...
"""

import argparse
import logging
import signal
import sys
from dataclasses import replace
from pathlib import Path

import torch
import tyro

from model.storage import WeightsError
from model.transcriber import TranscriptionModel
from training.algorithmic.data import PROBLEMS
from training.loop.loop import Trainer
from training.loop.parallel import leave
from training.loop.run_folder import STATE
from training.loop.warm_start import warm_start
from training.presets import COMMANDS, MusicRun, Run, presets_of

DEFAULT_PRESET = "laptop"
PROG = "python -m training.run"
DESCRIPTION = """\
Trains a network; Ctrl-C stops and saves, --resume continues.

  {prog} musicnet --preset live --out runs/live
"""
MORE = """\
  --out DIR        weights, state and metrics of the run (default: runs/TASK)
  --resume         continue from the state in that folder
  --help-all       every option of TASK and PRESET, with units
"""


def parse(arguments: list[str], prog: str = PROG) -> Run:
    """The run that a command line describes. Exits if it is invalid or asks for help."""
    parser = argparse.ArgumentParser(
        prog=prog,
        usage="%(prog)s TASK [--preset PRESET] [options]",
        description=DESCRIPTION.format(prog=prog),
        epilog=MORE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        add_help=False,
        allow_abbrev=False,
    )
    parser.add_argument(
        "command", choices=sorted(COMMANDS), metavar="TASK", help=", ".join(sorted(COMMANDS))
    )
    listed = [
        f"{name}: {', '.join(sorted(presets_of(name, 'addition')))}" for name in sorted(COMMANDS)
    ]
    about = f"{'; '.join(listed)} (default: {DEFAULT_PRESET})"
    parser.add_argument("--preset", default=DEFAULT_PRESET, help=about)
    parser.add_argument(
        "--task",
        choices=sorted(PROBLEMS),
        metavar="NAME",
        default="addition",
        help=f"for algorithmic: {', '.join(sorted(PROBLEMS))}",
    )
    parser.add_argument(
        "--data",
        choices=["synth", "musicnet"],
        metavar="SET",
        default="synth",
        help="for musicnet: synth (rendered on the fly) or musicnet (the archive)",
    )
    parser.add_argument("--data-dir", type=Path, metavar="DIR", help="folder of the data")
    parser.add_argument(
        "--max-minutes", type=float, metavar="N", help="save and stop after N minutes"
    )
    if not arguments or {"-h", "--help"} & set(arguments):
        parser.print_help()
        parser.exit()
    known, rest = parser.parse_known_args(arguments)
    chosen = presets_of(known.command, known.task)
    if known.preset not in chosen:
        parser.error(f"{known.command} has no preset {known.preset!r}: {sorted(chosen)}")
    run: Run = tyro.cli(
        COMMANDS[known.command],
        prog=f"{prog} {known.command} --preset {known.preset}",
        default=adjusted(chosen[known.preset], known),
        args=["--help" if argument == "--help-all" else argument for argument in rest],
        config=(tyro.conf.AvoidSubcommands,),
    )
    return run


def adjusted(run: Run, options: argparse.Namespace) -> Run:
    """A preset with --max-minutes and, if it trains on audio, --data and --data-dir applied."""
    if options.max_minutes is not None:
        run = replace(run, loop=replace(run.loop, max_minutes=options.max_minutes))
    if not isinstance(run, MusicRun):
        return run
    music = replace(run.music, data=options.data)
    if options.data_dir and options.data == "synth":
        music = replace(music, synth=replace(music.synth, root=options.data_dir))
    elif options.data_dir:
        music = replace(music, archive=replace(music.archive, root=options.data_dir))
    return replace(run, music=music)


def train(run: Run) -> dict[str, float]:
    """Starts or resumes training in the run's folder; returns the last metrics.

    Raises WeightsError as :func:`make_trainer` does.
    """
    return make_trainer(run).run()


def make_trainer(run: Run) -> Trainer:
    """The trainer of a run, at the point where its folder stops.

    Raises WeightsError if the folder or the initial weights do not fit.
    """
    if not run.resume and (run.out / STATE).exists():
        raise WeightsError(
            f"{run.out} already holds a run: continue with --resume, or choose another --out"
        )
    torch.manual_seed(run.loop.seed)  # for the initial weights
    task = run.make_task()
    earlier = []
    if isinstance(run, MusicRun) and run.init and not run.resume:
        assert isinstance(task.network, TranscriptionModel)
        earlier = warm_start(task.network, run.init)
    trainer = Trainer(task, run.loop, run.out, earlier)
    if run.resume:
        trainer.resume()
    return trainer


def main(arguments: list[str] | None = None, prog: str = PROG) -> int:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    for stop in (signal.SIGINT, signal.SIGTERM):  # also in the background, where SIGINT is ignored
        signal.signal(stop, signal.default_int_handler)
    try:
        metrics = train(parse(sys.argv[1:] if arguments is None else arguments, prog))
        leave()
    except (ArithmeticError, OSError, ValueError) as error:
        print(f"{prog}: {error}", file=sys.stderr)
        return 1
    if metrics:  # of the first of several processes, unless it was interrupted
        print(" ".join(f"{name} {value:.4f}" for name, value in metrics.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
