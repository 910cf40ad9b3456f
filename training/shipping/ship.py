"""Turns finished runs into weights: ``python -m training.shipping.ship RUN ... --name live``.

Writes ``model/weights/NAME.safetensors`` in float16, its card ``NAME.json`` (configuration, data,
validation figures, settings of the note tracker) and a page for readers, ``NAME.md``. Validation
and the choice of settings use the written weights. The weights of several runs, which started from
the same weights, are averaged. Without RUN, the command only chooses the
settings of existing weights: ``--name live --parts early``. Each part depends on the parts before
it. All parts use validation passages. With ``--real DIR``, these include the validation split of
the real recordings in DIR. The part ``recordings`` also uses the recordings of ``--choose DIR``,
which must not be used to train or to evaluate.
"""

import argparse
import dataclasses
import logging
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import torch

from model.commands import documented_parser
from model.storage import WEIGHTS, load, save_weights
from model.transcriber import TranscriptionModel
from service.notes.tracker_settings import TrackerSettings
from training.music.families import validation_passages
from training.music.synth.config import CACHE, SynthConfig
from training.music_task import MusicConfig, MusicTask
from training.shipping.anytime_thresholds import anytime_settings
from training.shipping.card import sources, with_sources, write_card
from training.shipping.tune import SEED, DrawPassages, settings_on_recordings, tuned_settings

logger = logging.getLogger(__name__)

Part = Callable[[TranscriptionModel, DrawPassages, Path | None], TrackerSettings]
PARTS: dict[str, tuple[Part, int, float]] = {
    "tune": (tuned_settings, 8, 14.0),
    "recordings": (settings_on_recordings, 32, 14.0),
    "early": (anytime_settings, 2, 10.0),
}
"""Function of each part, its number of passages of each family and their length in seconds."""


def main(arguments: list[str] | None = None) -> int:
    parser = documented_parser("training.shipping.ship", __doc__)
    add = parser.add_argument
    add("runs", type=Path, nargs="*", metavar="RUN", help="folder of a training run")
    add("--name", required=True, help="name of the weights")
    add("--weights", default="best", choices=["best", "last"])
    add("--parts", nargs="*", choices=list(PARTS), default=list(PARTS), help="settings to choose")
    add("--synth", type=Path, default=Path("data/synth"), help="training data")
    add("--real", type=Path, help="real recordings with scores or note labels")
    add("--choose", type=Path, help="recordings for the part `recordings` (default: skip it)")
    add("--out", type=Path, default=WEIGHTS, help="folder of the package's weights")
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    path = options.out / f"{options.name}.safetensors"
    synth = SynthConfig(options.synth, CACHE, real_root=options.real)
    try:
        if options.runs:
            files = [run / f"{options.weights}.safetensors" for run in options.runs]
            write(files, path, synth)
        choose(path, synth, options)
    except (ValueError, OSError) as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 1
    return 0


def write(runs: Sequence[Path], path: Path, synth: SynthConfig) -> None:
    """Write the mean of the weights of runs, and the card of the first. Raises ValueError if
    ``averaged`` does, and ValueError or OSError for unusable data."""
    trained = averaged(runs)
    config = dataclasses.replace(trained.config, name=path.stem)
    # The sources are read before anything is written, because missing data are an error.
    card = with_sources(trained.card, sources(synth))
    card |= {"name": path.stem, "config": config.to_json(), "tracker": {}}
    save_weights(trained, card, path, half=True)
    task = MusicTask(MusicConfig(config, synth))
    card["validation"] = task.validate(load(path, dtype=torch.float32))
    logger.info("validation: %s", card["validation"])
    write_card(path, card)


def averaged(runs: Sequence[Path]) -> TranscriptionModel:
    """Return the first network with the mean of the weights of all. Raises ValueError if the runs
    have different networks, or one was not trained on rendered audio."""
    networks = [load(run, dtype=torch.float32) for run in runs]
    for run, network in zip(runs, networks, strict=True):
        if not network.card.get("data", {}).get("synth"):
            raise ValueError(f"{run} was not trained on rendered audio")
        if network.config != networks[0].config:
            raise ValueError(f"{run} has another network than {runs[0]}")
    states = [network.state_dict() for network in networks]
    networks[0].load_state_dict(
        {name: sum(state[name] for state in states) / len(states) for name in states[0]}
    )
    return networks[0]


def choose(path: Path, synth: SynthConfig, options: argparse.Namespace) -> None:
    """Choose the note tracker settings and write them to the card. Raises ValueError or OSError for
    unusable data."""
    for name in options.parts:
        (part, count, seconds), transcriber = PARTS[name], load(path)
        passages = partial(validation_passages, synth, count, seconds, SEED)
        settings = part(transcriber, passages, options.choose)
        logger.info("%s", settings)
        write_card(path, {**transcriber.card, "tracker": dataclasses.asdict(settings)})


if __name__ == "__main__":
    sys.exit(main())
