"""Choose settings of the note tracker: ``python -m training.shipping.choose tune --write``.

Each of PARTS chooses some settings in the card of the weights and keeps the others; the choices of
one depend on those before, so run those behind it again. All use validation passages alone, with
``--real DIR`` the validation split of real recordings among them. ``--write`` stores the settings
in the card.
"""

import argparse
import dataclasses
import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from model.commands import documented_parser
from model.config import INSTRUMENT_HEADS
from model.storage import load, resolve, shipped
from model.transcriber import TranscriptionModel
from service.notes.tracker_settings import TrackerSettings
from training.music.synth.config import CACHE, SynthConfig
from training.shipping.card import write_card
from training.shipping.early import early_settings
from training.shipping.naming import naming_settings
from training.shipping.tune import tuned_settings

logger = logging.getLogger(__name__)


class Part(NamedTuple):
    """A choice of some settings."""

    choose: Callable[[TranscriptionModel, SynthConfig, int, float], TrackerSettings]
    """From the network, the material, the number of passages and their seconds."""
    passages: int  # of each family, or of each held-out instrument
    seconds: float
    heads: frozenset[str]  # that the network must have


PARTS = {
    "tune": Part(tuned_settings, 8, 14.0, frozenset()),
    "early": Part(early_settings, 2, 10.0, frozenset({"onset"})),
    "naming": Part(naming_settings, 2, 15.0, frozenset({"pedal", *INSTRUMENT_HEADS})),
}


def add_material(parser: argparse.ArgumentParser) -> None:
    """The options that say what is chosen on."""
    add = parser.add_argument
    add("--synth", type=Path, default=Path("data/synth"), help="training data")
    add("--cache", type=Path, default=CACHE, help="its cache")
    add("--real", type=Path, help="real recordings with their scores")
    own = "(default: each part's own)"
    add("--passages", type=int, help=f"of each family or instrument {own}")
    add("--seconds", type=float, help=f"length of each {own}")


def chosen(
    part: Part, transcriber: TranscriptionModel, options: argparse.Namespace
) -> TrackerSettings:
    """Raises ValueError or OSError for material that cannot be used."""
    synth = SynthConfig(options.synth, options.cache, real_root=options.real)
    passages, seconds = options.passages or part.passages, options.seconds or part.seconds
    found = part.choose(transcriber, synth, passages, seconds)
    logger.info("%s", found)
    return found


def main(arguments: list[str] | None = None) -> int:
    parser = documented_parser("training.shipping.choose", __doc__)
    parser.add_argument("part", choices=list(PARTS))
    parser.add_argument("--model", default="live", help=f"{', '.join(shipped())} or a .safetensors")
    add_material(parser)
    parser.add_argument("--write", action="store_true", help="into the card of the weights")
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    try:
        transcriber, part = load(options.model), PARTS[options.part]
        if missing := part.heads - set(transcriber.config.heads):
            raise ValueError(f"{options.model} lacks the heads {', '.join(sorted(missing))}")
        found = chosen(part, transcriber, options)
        if options.write:
            card = {**transcriber.card, "tracker": dataclasses.asdict(found)}
            write_card(Path(resolve(options.model)), card)
    except (ValueError, OSError) as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
