"""Train a network.

    python -m training.run algorithmic                      # a minute, without any data
    python -m training.run musicnet --preset live --data-dir DIR/synth --out runs/live
    python -m training.run musicnet --out runs/live --resume

Every field of a preset can be overridden, for example --loop.minutes 10 --algorithmic.rse.maps 96;
--help-all lists them with their units. The run's folder receives its configuration, the last and
the best weights, the state of the run and metrics.jsonl. --loop.max-minutes stops and saves in
time, and --resume continues with the folder's configuration, so long training fits into short
sessions; Ctrl-C saves too, without validating.
"""

import argparse
import json
import logging
import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import tyro
from pydantic import TypeAdapter

from model.storage import WeightsError, write_whole
from model.transcriber import TranscriptionModel
from training.algorithmic.data import PROBLEMS
from training.loop.loop import Trainer
from training.loop.run_folder import STATE, warm_start
from training.presets import COMMANDS, AlgorithmicRun, LambadaRun, MusicRun, Run, presets_of

DEFAULT_PRESET = "minute"
CONFIG = "config.json"
INTERRUPTED = 130  # exit status, as a shell's after Ctrl-C
PROG = "python -m training.run"

logger = logging.getLogger(__name__)


def parse(arguments: list[str], prog: str = PROG) -> Run:
    """The run that a command line describes. Exits if it is invalid or asks for help. Raises
    OSError or WeightsError if it resumes a run that cannot be read or trains something else."""
    known, rest = _parser(prog).parse_known_args(arguments)
    command, preset, task = known.command, known.preset, getattr(known, "task", None)
    out = known.out or Path("runs") / command
    if known.resume and (out / CONFIG).is_file():
        base = read_run(out)
        if not isinstance(base, COMMANDS[command]) or preset not in (None, base.preset):
            held = f"{_command(base)}, preset {base.preset}"
            raise WeightsError(f"{out} holds a run of {held}: choose another --out")
    else:
        preset = preset or DEFAULT_PRESET
        base = replace(presets_of(command, task or "addition")[preset], preset=preset)
    if any(one.partition("=")[0] == "--loop.steps" for one in rest):
        base = replace(base, loop=replace(base.loop, minutes=0))  # which would count instead
    if task and isinstance(base, AlgorithmicRun):
        base = replace(base, algorithmic=replace(base.algorithmic, task=task))
    if folder := getattr(known, "data_dir", None):
        base = _reading(base, folder)
    run: Run = tyro.cli(
        COMMANDS[command],
        prog=f"{prog} {command} --preset {base.preset}",
        default=replace(base, out=out, resume=known.resume),
        args=["--help" if argument == "--help-all" else argument for argument in rest],
        config=(tyro.conf.AvoidSubcommands,),
    )
    return run


def _parser(prog: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=prog,
        description="Trains a network; Ctrl-C stops and saves, --resume continues.",
        epilog="Each task has its own --help.",
    )
    tasks = parser.add_subparsers(dest="command", required=True, metavar="TASK")
    for name in sorted(COMMANDS):
        one = tasks.add_parser(name, help=f"train {name}", allow_abbrev=False)
        add = one.add_argument
        presets = list(presets_of(name, "addition"))
        text = f"{', '.join(presets)} (default: {DEFAULT_PRESET})"
        add("--preset", choices=presets, metavar="NAME", help=text)
        if name == "algorithmic":
            text = f"{', '.join(PROBLEMS)} (default: addition)"
            names = "--task", "--algorithmic.task"
            add(*names, dest="task", choices=list(PROBLEMS), metavar="NAME", help=text)
        else:
            add("--data-dir", type=Path, metavar="DIR", help="folder of the data")
        add("--out", type=Path, metavar="DIR", help=f"folder of the run (default: runs/{name})")
        add("--resume", action="store_true", help="continue the run in that folder")
        one.epilog = "--help-all lists every field of the preset, with its unit."
    return parser


def _reading(run: Run, folder: Path) -> Run:
    """A run with its data in a folder."""
    match run:
        case LambadaRun(lambada=data):
            paths: Any = {
                name: folder / path.name
                for name in ("train", "validation", "vectors")
                if (path := getattr(data, name))
            }
            return replace(run, lambada=replace(data, **paths))
        case MusicRun(music=music):
            synth = replace(music.synth, root=folder)
            return replace(run, music=replace(music, synth=synth, archive=folder))
    return run


def read_run(folder: Path) -> Run:
    """The configuration in a run's folder. Raises OSError, or WeightsError if it is none."""
    path = folder / CONFIG
    try:
        fields = json.loads(path.read_text())
        run: Run = TypeAdapter(COMMANDS[fields.pop("command")]).validate_python(fields)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise WeightsError(f"{path} is not the configuration of a run: {error}") from error
    return run


def write_run(run: Run) -> None:
    """Writes the configuration into the run's folder."""
    fields = TypeAdapter(type(run)).dump_python(run, mode="json")
    text = json.dumps({"command": _command(run), **fields}, indent=1)
    write_whole(run.out / CONFIG, text.encode())


def _command(run: Run) -> str:
    return next(name for name, kind in COMMANDS.items() if isinstance(run, kind))


def train(run: Run) -> dict[str, float]:
    """Starts or resumes training in the run's folder; returns the last metrics. Raises
    FileNotFoundError for data that are not there, WeightsError if the folder or the initial weights
    do not fit."""
    if not run.resume and (run.out / STATE).exists():
        raise WeightsError(
            f"{run.out} already holds a run: continue with --resume, or choose another --out"
        )
    reads = {option: path for option, path in run.reads().items() if path}
    if missing := [f"{path} ({option})" for option, path in reads.items() if not path.exists()]:
        raise FileNotFoundError(f"missing: {', '.join(missing)}; the options say where data are")
    torch.manual_seed(run.loop.seed)  # for the initial weights
    task = run.make_task()
    earlier = []
    if isinstance(run, MusicRun) and run.init and not run.resume:
        assert isinstance(task.network, TranscriptionModel)
        earlier = warm_start(task.network, run.init)
    trainer = Trainer(task, run.loop, run.out, earlier)
    if run.resume:
        trainer.resume()
    write_run(run)
    name = run.algorithmic.task if isinstance(run, AlgorithmicRun) else _command(run)
    parameters = sum(p.numel() for p in task.network.parameters() if p.requires_grad)
    logger.info(
        "%s, preset %s: %s parameters on %s in %s; data: %s; %s; %d steps done; writes to %s",
        *(name, run.preset, f"{parameters:,}", trainer.device),
        "bfloat16" if trainer.bfloat16 else "float32",
        ", ".join(map(str, reads.values())) or "made up",
        f"{run.loop.minutes:g} minutes" if run.loop.minutes else f"{run.loop.steps:,} steps",
        *(trainer.step, run.out),
    )
    return trainer.run()


def main(arguments: list[str] | None = None, prog: str = PROG) -> int:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    for stop in (signal.SIGINT, signal.SIGTERM):  # also in the background, where SIGINT is ignored
        signal.signal(stop, signal.default_int_handler)
    try:
        run = parse(sys.argv[1:] if arguments is None else arguments, prog)
        metrics = train(run)
    except (ArithmeticError, OSError, ValueError) as error:
        print(f"{prog}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:  # while data are read, or the second
        print(f"{prog}: interrupted; nothing new is saved", file=sys.stderr)
        return INTERRUPTED
    if metrics:  # unless it was interrupted
        print(" ".join(f"{name} {value:.4f}" for name, value in metrics.items()))
        print(f"{run.out} holds the weights, best.safetensors and last.safetensors")
    return 0


if __name__ == "__main__":
    sys.exit(main())
