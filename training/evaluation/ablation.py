"""The contribution of each part of the training data.

``python -m training.evaluation.ablation --out DIR`` trains a small network on all data and once
without each part, with the same seed and number of steps, and scores them under the conditions of
``training.evaluation.conditions``. Finished networks are kept in the folder, so a second call
resumes.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import torch

from model.config import LIVE, FilterbankConfig
from model.storage import WeightsError, load, write_whole
from training.commands import add_material, documented_parser
from training.evaluation.conditions import ConditionSet, Scores, table
from training.loop.config import LoopConfig
from training.loop.loop import Trainer
from training.music.synth.config import SynthConfig
from training.music_task import MusicConfig, MusicTask

BY_KEYS = "labels by keys"
logger = logging.getLogger(__name__)

SMALL = replace(
    LIVE,
    name="small",
    front_end=FilterbankConfig(channels=16, convolutions=2),
    rse=replace(LIVE.rse, maps=32),
)


def variants(whole: SynthConfig) -> dict[str, SynthConfig]:
    """The data without each of its parts."""
    recording = whole.recording
    quiet_kinds = {k: v for k, v in whole.background_kinds.items() if k == "silence"}
    wordless = {
        k: v for k, v in whole.background_kinds.items() if k not in ("talk", "conversation")
    }
    return {
        "whole": whole,
        "without rooms": replace(whole, recording=replace(recording, room=0.0)),
        "without microphones and levels": replace(
            whole,
            recording=replace(
                recording, equaliser=0.0, compressor=0.0, saturation=0.0, clipping=0.0,
                quietest_db=0.0,
            ),
        ),
        "without noise and drums": replace(
            whole,
            background_kinds=quiet_kinds,
            recording=replace(
                recording, noise=0.0, hum=0.0, clicks=0.0, drums=0.0, voice=0.0
            ),
        ),
        "without talk": replace(
            whole, background_kinds=wordless, recording=replace(recording, voice=0.0)
        ),
        "without telephone and MP3": replace(
            whole, recording=replace(recording, telephone=0.0, mp3=0.0)
        ),
        "without vibrato": replace(whole, vibrato_probability=0.0),
        "without overlays": replace(whole, overlay_probability=0.0),
        "without random notes": replace(whole, random_probability=0.0),
        "without re-orchestration": replace(
            whole,
            piano_probability=0.0,
            string_solo_piano_probability=0.0,
            reorchestrate_probability=0.0,
        ),
        BY_KEYS: replace(whole, labels="keys"),
    }  # fmt: skip


def train(synth: SynthConfig, loop: LoopConfig, batch_size: int, folder: Path) -> None:
    """Trains a small network into the folder; an interrupted one is discarded."""
    music = MusicConfig(SMALL, synth, batch_size=batch_size, workers=0, validation_windows=64)
    torch.manual_seed(loop.seed)
    trainer = Trainer(MusicTask(music), loop, folder)
    trainer.run()
    if trainer.progress < 1:
        (folder / "last.safetensors").unlink()
        raise KeyboardInterrupt


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit status."""
    parser = documented_parser("training.evaluation.ablation", __doc__)
    parser.add_argument("--out", type=Path, default=Path("runs/ablation"))
    add_material(parser)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--batch-size", type=int, default=16, help="windows per step")
    parser.add_argument("--windows", type=int, default=400, help="scored under each condition")
    parser.add_argument("--junk-seconds", type=float, default=60.0)
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    try:
        found = ablate(options)
    except (WeightsError, ArithmeticError, OSError, ValueError) as error:
        print(f"training.evaluation.ablation: {error}", file=sys.stderr)
        return 1
    print(table(found))
    return 0


def ablate(options: argparse.Namespace) -> dict[str, dict[str, Scores]]:
    """The scores of each variant, trained unless the folder has it."""
    whole = SynthConfig(root=options.synth, cache=options.cache)

    @cache
    def scored(labels: str) -> ConditionSet:
        of_kind = replace(whole, labels=labels)  # type: ignore[arg-type]
        return ConditionSet(of_kind, options.windows, options.junk_seconds)

    loop = LoopConfig(
        steps=options.steps,
        learning_rate=4e-3,
        average=0.99,
        warmup=0.05,
        validate_steps=10 * options.steps,
    )
    found = {}
    for name, synth in variants(whole).items():
        folder = options.out / name.replace(" ", "-")
        # Labels of pedalled notes are scored against both kinds of labels.
        both = name in ("whole", BY_KEYS)
        for labels in ("sounding", "keys") if both else (synth.labels,):
            scores = folder / f"{labels}.json"
            if not scores.exists():
                if not (folder / "last.safetensors").exists():
                    train(synth, loop, options.batch_size, folder)
                result = scored(labels).score(load(folder / "last.safetensors"))
                write_whole(scores, json.dumps(result).encode())
            row = name if labels == "sounding" else f"{name}, scored by keys"
            found[row] = json.loads(scores.read_text())
        logger.info("%s\n%s", name, table(found))
    return found


if __name__ == "__main__":
    sys.exit(main())
