"""From a finished run to weights: ``python -m training.shipping.ship RUN --name live``.

Writes ``model/weights/NAME.safetensors`` in float16, its JSON card (configuration, data, validation
figures, settings of the note tracker) and a model card to read (``NAME.md``). Validation and all
of ``choose.PARTS`` whose heads the network has use the written weights.
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
from training.shipping.card import sources, write_card
from training.shipping.choose import PARTS, add_material, chosen

logger = logging.getLogger(__name__)


def main(arguments: list[str] | None = None) -> int:
    parser = documented_parser("training.shipping.ship", __doc__)
    parser.add_argument("run", type=Path, help="folder of a training run")
    parser.add_argument("--name", default="live")
    parser.add_argument("--weights", default="best", choices=["best", "last"])
    add_material(parser)
    parser.add_argument("--windows", type=int, default=1000, help="windows to validate on")
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
    config = dataclasses.replace(trained.config, name=options.name)
    card = trained.card | {"name": options.name, "config": config.to_json(), "tracker": {}}
    rendered = any(stage["synth"] for stage in stages(trained.card))
    # Before anything is written: settings are chosen on the material in any case.
    material = sources(dataclasses.replace(synth, real_root=options.real))
    card["sources"] = material if rendered else {}
    path = options.out / f"{options.name}.safetensors"
    save_weights(trained, card, path, half=True)

    music = MusicConfig(config, synth, validation_windows=options.windows)
    card["validation"] = MusicTask(music).validate(load(path, dtype=torch.float32))
    logger.info("validation: %s", card["validation"])
    for part in PARTS.values():
        if part.heads <= set(config.heads):
            card["tracker"] = dataclasses.asdict(chosen(part, load(path), options))
            write_card(path, card)
    logger.info("%s: %.1f MiB", path.name, path.stat().st_size / 2**20)


if __name__ == "__main__":
    sys.exit(main())
