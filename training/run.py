"""Train a network: ``python -m training.run musicnet --preset live --out runs/live``.

Every field of a preset can be overridden (``--help`` after the preset lists them with units):
``--loop.minutes 10 --music.batch-size 16``. The run's folder receives last and best checkpoint,
the optimiser's state and metrics.jsonl; ``--resume`` goes on where the folder stops, and
``--loop.max-minutes`` ends a slice in time, so that long training fits short sittings.
"""

from __future__ import annotations

import argparse
import logging
import signal
import sys

import tyro

from training.loop import Trainer
from training.musicnet import MusicTask
from training.presets import MUSIC_PRESETS, MusicRun


def main(arguments: list[str] | None = None) -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="training.run",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        add_help=False,
    )
    parser.add_argument("task", choices=["musicnet"])
    parser.add_argument("--preset", choices=sorted(MUSIC_PRESETS), default="laptop")
    parser.add_argument("--data", choices=["synth"], default="synth", help="what to train on")
    known, rest = parser.parse_known_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    run = tyro.cli(
        MusicRun,
        prog=f"{parser.prog} {known.task} --preset {known.preset}",
        description=parser.format_help(),
        default=MUSIC_PRESETS[known.preset],
        args=rest,
        config=(tyro.conf.AvoidSubcommands,),
    )
    for stop in (signal.SIGINT, signal.SIGTERM):  # also in the background, where SIGINT is ignored
        signal.signal(stop, signal.default_int_handler)
    trainer = Trainer(MusicTask(run.music), run.loop, run.out)
    if run.resume:
        trainer.resume()
    metrics = trainer.run()
    print(" ".join(f"{name} {value:.4f}" for name, value in metrics.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
