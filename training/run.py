"""Train a network.

    python -m training.run algorithmic                      # takes a minute, needs no data
    python -m training.run musicnet --preset live --data-dir DIR/synth --out runs/live
    python -m training.run musicnet --out runs/live --resume

Every field of a preset can be set by an option, for example --loop.steps 5000
--algorithmic.rse.maps 96. --help-all lists the fields with their units. training/README.md
describes the tasks, and how to stop and resume a run.
"""

import argparse
import difflib
import json
import logging
import signal
import sys
from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

from model.commands import INTERRUPTED, interruptible_imports

PROG = "python -m training.run"

with interruptible_imports(PROG):
    import torch
    import tyro
    from pydantic import TypeAdapter

    from model.storage import WeightsError, write_atomically
    from model.transcriber import TranscriptionModel
    from training.algorithmic.data import PROBLEMS
    from training.loop.loop import Trainer
    from training.loop.run_folder import STATE, warm_start
    from training.presets import COMMANDS, AlgorithmicRun, LambadaRun, MusicRun, Run, presets_of

DEFAULT_PRESET = "minute"
CONFIG = "config.json"
# Fields that a resumed run cannot change: they define the task, the shapes of the weights, and the
# state of the optimiser.
FIXED = (
    "init",
    "lambada.corpus_vectors",
    "lambada.vectors",
    "lambada.vocabulary",
    "algorithmic.task",
    "algorithmic.rse.",
    "lambada.rse.",
    "lambada.length",
    "loop.optimizer",
    "loop.weight_decay",
    "music.model.",
)

# Fields that do not change the results of a run.
INCIDENTAL = ("out", "resume", "loop.max_minutes")

# Main metric of the preset `minute`, by task, except for multiplication and sorting: its name, its
# value by chance, and its usual value after a full run.
MINUTE_FIGURES = {
    "addition": ("accuracy", 0.5, 0.997),
    "lambada": ("accuracy", 0.056, 1.0),
    "musicnet": ("ap_100ms", 0.014, 0.995),
}

logger = logging.getLogger(__name__)


def parse(arguments: list[str], prog: str = PROG) -> Run:
    """Return the run that a command line describes. Exits if the command line is invalid or
    requests help. Raises OSError or WeightsError if the run to resume cannot be read, or has
    another task, preset, network or optimiser."""
    # argparse reads the options on which the defaults of the fields depend; tyro reads the fields.
    parser = _parser(prog)
    options, rest = parser.parse_known_args(arguments)
    command, preset, task = options.command, options.preset, getattr(options, "task", None)
    own_options = ["--" + name.replace("_", "-") for name in vars(options) if name != "command"]
    for option in (word.partition("=")[0] for word in rest if word.startswith("--")):
        # The cutoff is high, because tyro suggests fields: --loop.setps must not suggest --preset.
        if near := difflib.get_close_matches(option, own_options, cutoff=0.8):
            parser.error(f"unknown option {option}; did you mean {near[0]}?")
    out = options.out or Path("runs") / command
    saved = None
    if options.resume:
        base = saved = read_run(out)
        if not isinstance(base, COMMANDS[command]) or preset not in (None, base.preset):
            contents = f"a run of {_command(base)}, preset {base.preset}"
            raise WeightsError(f"{out} contains {contents}: choose another --out")
    else:
        preset = preset or DEFAULT_PRESET
        base = replace(presets_of(command, task or "addition")[preset], preset=preset)
    if task and isinstance(base, AlgorithmicRun):
        base = replace(base, algorithmic=replace(base.algorithmic, task=task))
    if folder := getattr(options, "data_dir", None):
        base = _with_data(base, folder)
    run: Run = tyro.cli(
        COMMANDS[command],
        prog=f"{prog} {command} --preset {base.preset}",
        default=replace(base, out=out, resume=options.resume),
        args=["--help" if argument == "--help-all" else argument for argument in rest],
        config=(tyro.conf.AvoidSubcommands,),
    )
    data = ["data_dir"] if folder else []
    data += [
        name
        for name, _, value in _differences(base, run)
        if isinstance(value, Path) and name not in ("out", "init")
    ]
    if data and not run.reads():
        option = "--" + data[0].replace("_", "-")
        parser.error(f"{option}: preset {base.preset} needs no data; choose another --preset")
    if saved:
        _check_changes(saved, run)
    return run


def _check_changes(saved: Run, run: Run) -> None:
    """Log the fields that a resumed run changes. Raises WeightsError if one of them is FIXED."""
    changes = [
        f"{name} from {old} to {new}"
        for name, old, new in _differences(saved, run)
        if name not in ("out", "resume")
    ]
    if fixed := [change for change in changes if change.startswith(FIXED)]:
        raise WeightsError(
            f"a resumed run cannot change {', '.join(fixed)}; start a new run with another --out"
        )
    for change in changes:
        logger.info("the command line changes %s", change)


def changed_options(saved: Run, run: Run) -> list[str]:
    """Return "NAME from OLD to NEW" for each field, except INCIDENTAL, in which two runs differ."""
    return [
        f"{name} from {old} to {new}"
        for name, old, new in _differences(saved, run)
        if name not in INCIDENTAL
    ]


def _differences(old: Any, new: Any, prefix: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yield the dotted name and both values of every field in which two configurations differ."""
    for field in fields(old):
        before, after = getattr(old, field.name), getattr(new, field.name)
        name = prefix + field.name
        if is_dataclass(before) and type(before) is type(after):
            yield from _differences(before, after, f"{name}.")
        elif before != after:
            yield name, before, after


def _parser(prog: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=prog,
        description="Trains a network. Ctrl-C saves and stops. --resume continues.",
        epilog="TASK --help lists the options of a task.",
    )
    tasks = parser.add_subparsers(dest="command", required=True, metavar="TASK")
    for name in sorted(COMMANDS):
        subparser = tasks.add_parser(name, help=f"train {name}", allow_abbrev=False)
        add = subparser.add_argument
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
        add("--resume", action="store_true", help="continue the run in the folder of --out")
        subparser.epilog = "--help-all lists every field of the preset, with its unit."
    return parser


def _with_data(run: Run, folder: Path) -> Run:
    """Return the run with its data, except real recordings, in ``folder``."""
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
    """Read the configuration in a run's folder. Raises OSError if the file cannot be read, and
    WeightsError if it is missing or is not a configuration."""
    path = folder / CONFIG
    if not path.is_file():
        raise WeightsError(f"nothing to resume: {path} does not exist")
    try:
        values = json.loads(path.read_text())
        run: Run = TypeAdapter(COMMANDS[values.pop("command")]).validate_python(values)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise WeightsError(f"{path} is not the configuration of a run: {error}") from error
    return run


def write_run(run: Run) -> None:
    """Write the configuration into the run's folder."""
    values = TypeAdapter(type(run)).dump_python(run, mode="json")
    text = json.dumps({"command": _command(run), **values}, indent=1)
    write_atomically(run.out / CONFIG, text.encode())


def _command(run: Run) -> str:
    return next(name for name, kind in COMMANDS.items() if isinstance(run, kind))


def _task_name(run: Run) -> str:
    return run.algorithmic.task if isinstance(run, AlgorithmicRun) else _command(run)


def train(run: Run) -> dict[str, float]:
    """Start or resume training in the run's folder. Return the metrics of the last validation, or
    an empty dict if a signal interrupted training. Raises FileNotFoundError for missing data.
    Raises WeightsError if the folder already contains a run, if a complete run is resumed with
    other options, or if the state to resume or the initial weights belong to another network."""
    if not run.resume and (run.out / STATE).exists():
        raise WeightsError(
            f"{run.out} already contains a run: continue with --resume, or choose another --out"
        )
    reads = {option: path for option, path in run.reads().items() if path}
    if missing := [f"{path} ({option})" for option, path in reads.items() if not path.exists()]:
        raise FileNotFoundError(f"missing: {', '.join(missing)}; set these options")
    torch.manual_seed(run.loop.seed)  # determines the initial weights
    task = run.make_task()
    earlier = []
    if isinstance(run, MusicRun) and run.init and not run.resume:
        assert isinstance(task.network, TranscriptionModel)
        earlier = warm_start(task.network, run.init)
    trainer = Trainer(task, run.loop, run.out, earlier)
    if run.resume:
        trainer.resume()
        changes = changed_options(read_run(run.out), run)
        if changes and trainer.progress >= 1:  # the old results would get the new options
            raise WeightsError(
                f"{run.out} is complete at step {trainer.step} and cannot change "
                f"{', '.join(changes)}; start a new run with another --out"
            )
    write_run(run)
    parameters = sum(p.numel() for p in task.network.parameters() if p.requires_grad)
    data = ", ".join(map(str, reads.values())) or "synthetic"
    number_format = "bfloat16" if trainer.bfloat16 else "float32"
    logger.info("%s, preset %s, data: %s", _task_name(run), run.preset, data)
    logger.info("%d parameters in %s on %s", parameters, number_format, trainer.device)
    logger.info("step %d of %d, folder %s", trainer.step, run.loop.steps, run.out)
    return trainer.run()


def main(arguments: list[str] | None = None, prog: str = PROG) -> int:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    # Shells start background jobs with SIGINT ignored.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    try:
        run = parse(sys.argv[1:] if arguments is None else arguments, prog)
        metrics = train(run)
    except (ArithmeticError, OSError, ValueError) as error:
        print(f"{prog}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:  # before training started, or the second signal
        print(f"{prog}: interrupted; progress since the last save is lost", file=sys.stderr)
        return INTERRUPTED
    if not metrics:
        print(f"{prog}: interrupted and saved; continue with --resume", file=sys.stderr)
        return INTERRUPTED
    print(" ".join(f"{name} {value:.4f}" for name, value in metrics.items()))
    if run.preset == DEFAULT_PRESET and _task_name(run) in MINUTE_FIGURES:
        figure, chance, usual = MINUTE_FIGURES[_task_name(run)]
        print(f"{figure}: {chance:.3f} by chance, {usual:.3f} after a full run of this preset")
    print(f"the weights are in {run.out}: best.safetensors and last.safetensors")
    return 0


if __name__ == "__main__":
    sys.exit(main())
