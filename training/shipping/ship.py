"""From a finished run to weights: ``python -m training.shipping.ship RUN --name live``.

Writes ``model/weights/NAME.safetensors`` in float16, its JSON card (configuration, data, validation
figures, settings of the note tracker) and a model card to read (``NAME.md``). Validation and all
of PARTS use the written weights.
``python -m training.shipping.card`` adds figures on recordings afterwards.
"""

import argparse
import dataclasses
import logging
import sys
from pathlib import Path

import torch

from model.commands import documented_parser
from model.storage import WEIGHTS, load, save_weights
from training.loop.warm_start import stages
from training.music.synth.config import SynthConfig
from training.music_task import MusicConfig, MusicTask
from training.shipping import early, naming, tune
from training.shipping.card import sources, write_card
from training.shipping.tune import add_material

logger = logging.getLogger(__name__)

PARTS = (tune.PART, early.PART, naming.PART)
"""In the order in which one's choice depends on those before; a network without a part's heads
passes it over."""


def main(arguments: list[str] | None = None) -> int:
    parser = documented_parser("training.shipping.ship", __doc__)
    parser.add_argument("run", type=Path, help="folder of a training run")
    parser.add_argument("--name", default="live")
    parser.add_argument("--weights", default="best", choices=["best", "last"])
    add_material(parser)
    parser.add_argument("--real", type=Path, help="real recordings that it was trained on")
    parser.add_argument("--windows", type=int, default=1000, help="windows to validate on")
    own = "(default: that of each part's own command)"
    parser.add_argument("--pieces", type=int, help=f"validation pieces to choose on {own}")
    parser.add_argument("--seconds", type=float, help=f"length of each {own}")
    parser.add_argument("--out", type=Path, default=WEIGHTS, help="folder of the package's weights")
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    try:
        ship(options)
    except (ValueError, OSError) as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 1
    return 0


def ship(options: argparse.Namespace) -> None:
    """Raises ValueError or OSError for weights, data or options that cannot be used."""
    trained = load(options.run / f"{options.weights}.safetensors", dtype=torch.float32)
    synth = SynthConfig(options.synth, options.cache)
    used = dataclasses.replace(synth, real_root=options.real)
    config = dataclasses.replace(trained.config, name=options.name)
    card = trained.card | {"name": options.name, "config": config.to_json(), "tracker": {}}
    rendered = any(stage["synth"] for stage in stages(trained.card))
    material = sources(used)  # before anything is written: settings are chosen on it in any case
    card["sources"] = material if rendered else {}
    path = options.out / f"{options.name}.safetensors"
    save_weights(trained, card, path, half=True)

    music = MusicConfig(config, synth, validation_windows=options.windows)
    card["validation"] = MusicTask(music).validate(load(path, dtype=torch.float32))
    logger.info("validation: %s", card["validation"])
    for choose, pieces, seconds, heads in PARTS:
        if heads <= set(config.heads):
            pieces, seconds = options.pieces or pieces, options.seconds or seconds
            card["tracker"] = dataclasses.asdict(choose(load(path), used, pieces, seconds))
            write_card(path, card)
    logger.info("%s: %.1f MiB", path.name, path.stat().st_size / 2**20)


if __name__ == "__main__":
    sys.exit(main())
