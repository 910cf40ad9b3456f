"""Fine-tune weights on your own recordings.

    python -m training.fine_tune FOLDER --out runs/harmonica
    rse-transcribe song.wav --model runs/harmonica/harmonica.safetensors

FOLDER contains recordings in any format that the service reads. The labels of a recording are in a
file with the same name and another ending: a MIDI file, or a table of notes (onset and offset in
seconds, pitch, and optionally velocity and program). They describe the performance, or are a score,
which is then aligned with the recording. training/README.md explains the checks, the split into
training, validation and test, and how the weights and the settings of the note tracker are chosen.
Only with --rendered does the command measure the accuracy on other instruments and limit its loss.

The command writes OUT/NAME.safetensors, the card OUT/NAME.json and OUT/report.json, where NAME is
the name of the folder OUT. Ctrl-C saves and stops. --resume continues.
"""

import argparse
import json
import logging
import signal
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from model.commands import (
    INTERRUPTED,
    at_least,
    documented_parser,
    interruptible_imports,
    write_atomically,
)

PROG = "python -m training.fine_tune"

with interruptible_imports(PROG):
    import torch

    from model.config import SAMPLE_RATE
    from model.storage import WeightsError, load, save_weights
    from model.transcriber import TranscriptionModel
    from service.engine.local import LocalEngine
    from training.fine_tune import choose
    from training.fine_tune.collection import Split, UserCollection, read_folder, split
    from training.fine_tune.task import OWN, FineTuneTask
    from training.loop.loop import LoopConfig, Trainer
    from training.loop.run_folder import STATE, warm_start
    from training.music.families import Passage, validation_passages
    from training.music.losses import DistillationConfig
    from training.music.synth.config import CACHE, SynthConfig
    from training.music_task import MusicConfig
    from training.shipping.card import sources, with_sources
    from training.shipping.tune import SEED

CONFIG, REPORT = "config.json", "report.json"
RESERVED = ("best", "last", *(Path(file).stem for file in (CONFIG, REPORT)))
"""Names of other files of a run, which the tuned weights and their card cannot have."""
TEACHER_SHARE = 0.5  # share of the initial weights' predictions in the targets of rendered audio
CHOOSE_PASSAGES, TEST_PASSAGES = 3, 6  # number of passages of each family
FAMILY_S = 12.0  # length of a passage


def main(arguments: list[str] | None = None) -> int:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    # Shells start background jobs with SIGINT ignored.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    try:
        is_complete = fine_tune(_options(arguments))
    except (ArithmeticError, OSError, ValueError) as error:
        print(f"{PROG}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"{PROG}: interrupted; progress since the last save is lost", file=sys.stderr)
        return INTERRUPTED
    return 0 if is_complete else INTERRUPTED


def _options(arguments: list[str] | None) -> argparse.Namespace:
    """Parse the command line. A resumed run has the saved options. Raises WeightsError if the
    folder contains a run but ``--resume`` is missing, or if ``--resume`` is given but the folder
    contains no run."""
    parser = documented_parser("training.fine_tune", __doc__)
    add = parser.add_argument
    add("folder", type=Path, nargs="?", help="recordings with labels")
    add("--out", type=Path, required=True, help="folder of the run")
    add("--model", default="live", help="initial weights: a shipped name or a .safetensors file")
    add("--rendered", type=Path, help="data from which audio is rendered, such as DIR/synth")
    kinds = ("auto", "performance", "score")
    add("--labels", choices=kinds, default="auto", help="what the labels describe (%(default)s)")
    text = "optimiser steps of 16 windows (%(default)s)"
    add("--steps", type=at_least(1), default=1000, help=text)
    add(
        "--learning-rate", type=at_least(0.0), default=2e-4, help="peak learning rate (%(default)s)"
    )
    add(
        "--seed",
        type=at_least(0),
        default=1,
        help="seed of the split and the training (%(default)s)",
    )
    add("--resume", action="store_true", help="continue the run in the folder, with its options")
    parser.set_defaults(recordings=None)
    options = parser.parse_args(arguments)
    path, name = options.out / CONFIG, options.out.resolve().name
    if name in RESERVED:
        parser.error(f"the folder {options.out} cannot be named {name}, like a file of the run")
    options.folder = options.folder and options.folder.resolve()  # to resume from any folder
    options.rendered = options.rendered and options.rendered.resolve()
    if Path(options.model).is_file():
        options.model = str(Path(options.model).resolve())
    if options.resume:
        if not path.is_file():
            raise WeightsError(f"nothing to resume: {path} does not exist")
        saved = json.loads(path.read_text())
        if not isinstance(saved, dict) or not {"folder"} <= saved.keys() <= vars(options).keys():
            raise WeightsError(f"{path} is not the configuration of a run of training.fine_tune")
        for name, value in saved.items():
            given = getattr(options, name)
            if given != parser.get_default(name) and str(given) != str(value):
                option = "FOLDER" if name == "folder" else "--" + name.replace("_", "-")
                raise WeightsError(f"a resumed run keeps its options: omit {option} {given}")
        vars(options).update(saved)
        options.folder = Path(options.folder)
        options.rendered = Path(options.rendered) if options.rendered else None
        return options
    if options.folder is None:
        parser.error("FOLDER is required")
    if (options.out / STATE).exists():
        raise WeightsError(
            f"{options.out} already contains a run: continue with --resume, or choose another --out"
        )
    _save(options)
    return options


def _save(options: argparse.Namespace) -> None:
    values = {name: value for name, value in vars(options).items() if name not in ("out", "resume")}
    text = json.dumps(values, indent=1, default=str)
    write_atomically(options.out / CONFIG, text.encode())


def fine_tune(options: argparse.Namespace) -> bool:
    """Train on the recordings, choose the interpolation and the settings of the note tracker, and
    report the accuracy. Return False if a signal interrupted training. Raises ValueError if the run
    is resumed with other recordings, whose split could test the weights on their training data.
    """
    initial = load(options.model, dtype=torch.float32)
    if not {"frame", "onset"} <= set(initial.config.heads):
        raise WeightsError(
            f"{options.model} lacks a frame or onset head: fine-tune live, light or accurate"
        )
    if initial.config.sample_rate != SAMPLE_RATE:
        raise WeightsError(
            f"{options.model} is at {initial.config.sample_rate} Hz; fine-tuning needs weights at "
            f"{SAMPLE_RATE} Hz"
        )
    synth = SynthConfig(options.rendered or Path("none"), CACHE)
    # The sources are read before the training, because an entry without a licence is an error.
    material = sources(synth) if options.rendered else {}
    with LocalEngine(initial) as computer:
        collection = read_folder(options.folder, computer, options.labels)
    print(collection.table(), flush=True)
    names = [own.recording.name for own in collection.recordings]
    if options.recordings not in (None, names):
        now, at_start = ", ".join(names), ", ".join(options.recordings)
        raise ValueError(
            f"{options.folder} has other usable recordings ({now}) than at the start of the run "
            f"({at_start}); start a new run with another --out"
        )
    options.recordings = names
    _save(options)
    parts = split(collection.recordings, options.seed)
    print(f"split: {parts.description}", flush=True)
    trainer = _trainer(options, initial, collection, parts, synth)
    metrics = trainer.run()
    if trainer.progress < 1:
        print(f"stopped at step {trainer.step} of {options.steps}: continue with --resume")
        return metrics != {}
    families: dict[str, list[Passage]] = {}
    if options.rendered:
        families = validation_passages(synth, CHOOSE_PASSAGES, FAMILY_S, SEED)
    passages = {OWN: choose.own_passages(parts.validation), **families}
    tuned = load(options.out / "last.safetensors", dtype=torch.float32)
    factor, scores = choose.choose_factor(initial, tuned, passages)
    print(f"factor of the tuned weights: {factor:g}", flush=True)
    network = choose.interpolated(initial, tuned, factor)
    settings = choose.choose_settings(network, passages)
    if options.rendered:
        families = validation_passages(synth, TEST_PASSAGES, FAMILY_S)
    tested = {OWN: choose.own_passages(parts.test), **families}
    path = options.out / f"{options.out.resolve().name}.safetensors"
    card = {
        **with_sources(tuned.card, material),
        "name": path.stem,
        "config": replace(initial.config, name=path.stem).to_json(),
        "tracker": asdict(settings),
    }
    save_weights(network, card, path, half=True)
    before = choose.figures(initial, tested)
    rows = choose.comparison(before, choose.figures(load(path, dtype=torch.float32), tested))
    print(choose.table(rows))
    report = {
        "initial": options.model,
        "factor": factor,
        "scores_by_factor": scores,
        "recordings": {
            name: [own.recording.name for own in getattr(parts, name)]
            for name in ("train", "validation", "test")
        },
        "split": parts.description,
        "left_out": collection.left_out,
        "comparison": rows,
    }
    write_atomically(options.out / REPORT, json.dumps(report, indent=1).encode())
    save_weights(network, {**card, "fine_tuned": report}, path, half=True)
    print(f"wrote {path}; use it with rse-transcribe --model {path}, or RSE_MODEL={path}")
    return True


def _trainer(
    options: argparse.Namespace,
    initial: TranscriptionModel,
    collection: UserCollection,
    parts: Split,
    synth: SynthConfig,
) -> Trainer:
    """Return the trainer, in its initial state or in the state of the saved run."""
    config = MusicConfig(
        model=initial.config,
        synth=synth,
        batch_size=16,
        distillation=DistillationConfig(options.model, TEACHER_SHARE),
    )
    own = [recording.training_copy for recording in parts.train]
    validation = choose.own_passages(parts.validation)
    rendered = options.rendered is not None
    task = FineTuneTask(config, own, collection.unlabelled, validation, rendered)
    assert isinstance(task.network, TranscriptionModel)
    loop = LoopConfig(
        steps=options.steps,
        learning_rate=options.learning_rate,
        average=0.99,
        validate_steps=max(1, options.steps // 4),
        seed=options.seed,
    )
    # A run that stopped before its first save has no state, so it starts again.
    has_state = (options.out / STATE).exists()
    earlier: list[dict[str, Any]] = [] if has_state else warm_start(task.network, options.model)
    trainer = Trainer(task, loop, options.out, earlier)
    if has_state:
        trainer.resume()
    return trainer


if __name__ == "__main__":
    sys.exit(main())
