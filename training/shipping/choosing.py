"""What chooses tracker settings on validation material, and its command line."""

import argparse
import dataclasses
import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from model.commands import documented_parser
from model.storage import load, resolve, shipped
from model.transcriber import TranscriptionModel
from service.notes.tracker_settings import TrackerSettings
from training.music.synth.config import CACHE, SynthConfig
from training.shipping.card import write_card

logger = logging.getLogger(__name__)


class Chooser(NamedTuple):
    """Takes the settings in the card of a network and chooses some of them anew."""

    choose: Callable[[TranscriptionModel, SynthConfig, int, float], TrackerSettings]
    """From the network, the material, the number of rendered pieces and their length in seconds."""
    pieces: int
    """By default."""
    seconds: float
    heads: frozenset[str] = frozenset()
    """That the network must have."""


def add_material(parser: argparse.ArgumentParser) -> None:
    """Where the material of rendered audio is, and its cache."""
    parser.add_argument("--synth", type=Path, default=Path("data/synth"), help="training data")
    parser.add_argument("--cache", type=Path, default=CACHE, help="its cache")


def command(
    program: str, description: str | None, chooser: Chooser, arguments: list[str] | None
) -> int:
    """Chooses settings and optionally writes them into the card; returns the exit status."""
    parser = documented_parser(program, description)
    parser.add_argument("--model", default="live", help=f"{', '.join(shipped())} or a .safetensors")
    add_material(parser)
    parser.add_argument("--real", type=Path, help="real recordings with their scores")
    parser.add_argument("--pieces", type=int, default=chooser.pieces, help="rendered pieces")
    parser.add_argument("--seconds", type=float, default=chooser.seconds, help="length of each")
    parser.add_argument("--write", action="store_true", help="into the card of the weights")
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    try:
        transcriber = load(options.model)
        if missing := chooser.heads - set(transcriber.config.heads):
            raise ValueError(f"{options.model} lacks the heads {', '.join(sorted(missing))}")
        synth = SynthConfig(options.synth, options.cache, real_root=options.real)
        found = chooser.choose(transcriber, synth, options.pieces, options.seconds)
        logger.info("%s", found)
        if options.write:
            card = {**transcriber.card, "tracker": dataclasses.asdict(found)}
            write_card(Path(resolve(options.model)), card)
    except (ValueError, OSError) as error:
        print(f"{program}: {error}", file=sys.stderr)
        return 1
    return 0
