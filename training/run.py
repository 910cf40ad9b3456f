"""Train a network.

    python -m training.run algorithmic                      # a minute, without any data
    python -m training.run musicnet --preset live --data-dir DIR/synth --out runs/live
    python -m training.run musicnet --out runs/live --resume

Every field of a preset can be overridden, for example --loop.minutes 10 --algorithmic.rse.maps 96;
--help-all lists them with their units. The run's folder receives its configuration, the last and
the best weights, the state of the run and metrics.jsonl. --max-minutes stops and saves in time, and
--resume continues with the folder's configuration, so long training fits into short sessions;
Ctrl-C saves too, without validating.
"""

import argparse
import json
import logging
import signal
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
import tyro
from pydantic import TypeAdapter, ValidationError

from model.ranges import explained
from model.storage import WeightsError, write_whole
from model.transcriber import TranscriptionModel
from training.algorithmic.data import PROBLEMS
from training.loop.loop import Trainer
from training.loop.run_folder import STATE
from training.loop.warm_start import warm_start
from training.presets import COMMANDS, AlgorithmicRun, LambadaRun, MusicRun, Run, presets_of

DEFAULT_PRESET = "minute"
CONFIG = "config.json"
FIXED = (
    "algorithmic.rse",
    "algorithmic.task",
    "lambada.corpus_vectors",
    "lambada.rse",
    "lambada.vocabulary",
    "loop.optimizer",
    "music.data",
    "music.model",
)
"""Fields that a resumed run cannot change: the state would not fit or mean something else."""
INTERRUPTED = 130  # exit status, as a shell's after Ctrl-C

PROG = "python -m training.run"
DESCRIPTION = """\
Trains a network; Ctrl-C stops and saves, --resume continues.

  {prog} algorithmic
  {prog} musicnet --preset live --data-dir SYNTH --out runs/live
"""

logger = logging.getLogger(__name__)


def parse(arguments: list[str], prog: str = PROG) -> Run:
    """The run that a command line describes. Exits if it is invalid or asks for help. Raises
    OSError or WeightsError if it resumes a run that cannot be read or trains something else."""
    parser = _parser(prog)
    if not arguments or {"-h", "--help"} & set(arguments):
        parser.print_help()
        parser.exit()
    known, rest = parser.parse_known_args(arguments)
    known.out = known.out or Path("runs") / known.command
    kept = read_run(known.out) if known.resume and (known.out / CONFIG).is_file() else None
    if kept:
        base = kept
        found = (("task", _command(kept), known.command), ("preset", kept.preset, known.preset))
        for name, there, asked in found:
            _check_same(known.out, name, there, asked or there)
    else:
        preset = known.preset or DEFAULT_PRESET
        chosen = presets_of(known.command, known.task or "addition")
        if preset not in chosen:
            parser.error(f"{known.command} has no preset {preset!r}: {', '.join(sorted(chosen))}")
        base = replace(chosen[preset], preset=preset)
    given = {argument.partition("=")[0] for argument in rest}
    if "--loop.steps" in given and "--loop.minutes" not in given:  # which would come first
        base = replace(base, loop=replace(base.loop, minutes=0))
    try:
        default = adjusted(base, known)
    except ValueError as error:
        parser.error(str(error))
    run: Run = tyro.cli(
        COMMANDS[known.command],
        prog=f"{prog} {known.command} --preset {base.preset}",
        default=default,
        args=["--help" if argument == "--help-all" else argument for argument in rest],
        config=(tyro.conf.AvoidSubcommands,),
    )
    if kept:
        _check_changes(kept, run)
    return run


def _parser(prog: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=prog,
        usage=f"%(prog)s {'|'.join(sorted(COMMANDS))} [options]",
        description=DESCRIPTION.format(prog=prog),
        epilog="  --help-all       every option of TASK and PRESET, with units\n",
        formatter_class=partial(argparse.RawDescriptionHelpFormatter, max_help_position=20),
        add_help=False,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("command", choices=sorted(COMMANDS), metavar="TASK", help=argparse.SUPPRESS)
    listed = [f"{name}: {', '.join(presets_of(name, 'addition'))}" for name in sorted(COMMANDS)]
    add("--preset", help=f"{'; '.join(listed)} (default: {DEFAULT_PRESET})")
    text = f"for algorithmic: {', '.join(sorted(PROBLEMS))}; also sets its number of blocks"
    add("--task", choices=sorted(PROBLEMS), metavar="NAME", help=text)
    add("--algorithmic.task", choices=sorted(PROBLEMS), dest="task", help=argparse.SUPPRESS)
    text = "for musicnet: synth (rendered), musicnet (the archive) or tones (made up)"
    add("--data", choices=["synth", "musicnet", "tones"], metavar="SET", help=text)
    add("--data-dir", type=Path, metavar="DIR", help="folder of the data")
    add("--out", type=Path, metavar="DIR", help="folder of the run (default: runs/TASK)")
    add("--resume", action="store_true", help="continue the run in that folder")
    add("--max-minutes", type=float, metavar="N", help="save and stop after N minutes")
    return parser


def adjusted(run: Run, options: argparse.Namespace) -> Run:
    """A run with the options that are shorter than its fields. Raises ValueError for options that
    it has no use for."""
    loop, folder = run.loop, options.data_dir
    if options.max_minutes is not None:
        loop = replace(loop, max_minutes=options.max_minutes)
    run = replace(run, loop=loop, out=options.out, resume=options.resume)
    if options.task and not isinstance(run, AlgorithmicRun):
        raise ValueError(f"--task is for algorithmic, not for {options.command}")
    if options.data and not isinstance(run, MusicRun):
        raise ValueError(f"--data is for musicnet, not for {options.command}")
    match run:
        case AlgorithmicRun(algorithmic=data):
            if folder:
                raise ValueError("algorithmic makes its data itself: leave out --data-dir")
            return replace(run, algorithmic=replace(data, task=options.task or data.task))
        case LambadaRun(lambada=data) if folder:
            paths: Any = {
                name: next(iter(sorted(folder.rglob(path.name))), folder / path.name)
                for name in ("train", "validation", "vectors")
                if (path := getattr(data, name))
            }
            return replace(run, lambada=replace(data, **paths))
        case MusicRun(music=music):
            music = replace(music, data=options.data or music.data)
            if folder and music.data == "tones":
                raise ValueError("tones are made up: --data synth or musicnet reads --data-dir")
            if folder and music.data == "musicnet":
                music = replace(music, archive=replace(music.archive, root=folder))
            elif folder:
                music = replace(music, synth=replace(music.synth, root=folder))
            return replace(run, music=music)
    return run


def read_run(folder: Path) -> Run:
    """The configuration in a run's folder. Raises OSError, or WeightsError if it is none."""
    path = folder / CONFIG
    try:
        fields = json.loads(path.read_text())
        run: Run = TypeAdapter(COMMANDS[fields.pop("command")]).validate_python(fields)
    except ValidationError as error:
        raise WeightsError(f"{path}: {explained(error.errors()[0])}") from error
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise WeightsError(f"{path} is not the configuration of a run: {error!r}") from error
    return run


def write_run(run: Run) -> None:
    """Writes the configuration into the run's folder."""
    text = json.dumps({"command": _command(run), **_fields(run)}, indent=1)
    write_whole(run.out / CONFIG, text.encode())


def _fields(run: Run) -> dict[str, Any]:
    fields: dict[str, Any] = TypeAdapter(type(run)).dump_python(run, mode="json")
    return fields


def _command(run: Run) -> str:
    return next(name for name, kind in COMMANDS.items() if isinstance(run, kind))


def _check_same(folder: Path, name: str, there: Any, asked: Any) -> None:
    """Raises WeightsError if something else than what the folder has is asked for."""
    if there != asked:
        raise WeightsError(f"{folder} has {name} {there}, not {asked}: choose another --out")


def _check_changes(kept: Run, run: Run) -> None:
    """Raises WeightsError if a resumed run changes a fixed field; reports others."""
    before, after = (_flat(_fields(one)) for one in (kept, run))
    for name in sorted((before | after).keys() - {"out", "resume"}):
        there, asked = before.get(name), after.get(name)
        if name.startswith(FIXED):
            _check_same(run.out, name, there, asked)
        if there != asked:
            logger.info("%s changes from %s to %s", name, there, asked)


def _flat(fields: dict[str, Any], above: str = "") -> dict[str, Any]:
    """Fields by their options' names, without the dashes."""
    out: dict[str, Any] = {}
    for name, value in fields.items():
        nested = isinstance(value, dict)
        out |= _flat(value, f"{above}{name}.") if nested else {above + name: value}
    return out


def train(run: Run) -> dict[str, float]:
    """Starts or resumes training in the run's folder; returns the last metrics. Raises
    FileNotFoundError for data that are not there, WeightsError if the folder or the initial weights
    do not fit."""
    if not run.resume and (run.out / STATE).exists():
        raise WeightsError(
            f"{run.out} already holds a run: continue with --resume, or choose another --out"
        )
    missing = [
        f"{path} ({option})" for option, path in run.reads().items() if path and not path.exists()
    ]
    if missing:
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
    logger.info("%s", described(run, trainer))
    return trainer.run()


def described(run: Run, trainer: Trainer) -> str:
    """What is about to be trained, in a line."""
    network, loop = trainer.task.network, run.loop
    parameters = sum(p.numel() for p in network.parameters() if p.requires_grad)
    name = run.algorithmic.task if isinstance(run, AlgorithmicRun) else _command(run)
    data = ", ".join(str(path) for path in run.reads().values() if path) or "made up"
    length = f"{loop.minutes:g} minutes" if loop.minutes else f"{loop.steps:,} steps"
    done = f", {trainer.step:,} steps of them done" if trainer.step else ""
    number_format = "bfloat16" if trainer.bfloat16 else "float32"
    return (
        f"{name}, preset {run.preset}: {parameters:,} parameters on {trainer.device} in "
        f"{number_format}; data: {data}; {length}{done}; writes to {run.out}"
    )


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
