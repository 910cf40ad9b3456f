"""Turn a finished run into weights of the package: ``python -m training.ship RUN --name live``.

Writes ``model/weights/NAME.safetensors`` in float16, its JSON card with configuration, data,
validation figures and the thresholds tuned on held-out instruments, and a model card to read
(``NAME.md``) with the attributions that the licences of the training material ask for.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import logging
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import torch

from model.checkpoint import WEIGHTS, load, save_checkpoint
from training.synth.config import SynthConfig
from training.tune import HeldOutPieces, tune

logger = logging.getLogger(__name__)


def main(arguments: list[str] | None = None) -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", type=Path, help="folder of a training run")
    parser.add_argument("--name", default="live")
    parser.add_argument("--checkpoint", default="best", choices=["best", "last"])
    parser.add_argument("--synth", type=Path, default=Path("../shared/synth"))
    parser.add_argument("--cache", type=Path, default=Path("~/.cache/rse-transcribe").expanduser())
    parser.add_argument("--pieces", type=int, default=16, help="validation pieces to tune on")
    parser.add_argument("--seconds", type=float, default=40.0, help="length of each")
    parser.add_argument("--out", type=Path, default=WEIGHTS, help="folder of the package's weights")
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")

    checkpoint = options.run / f"{options.checkpoint}.safetensors"
    transcriber = load(checkpoint, dtype=torch.float32)
    synth = SynthConfig(root=options.synth, cache=options.cache)
    pieces = HeldOutPieces(load(checkpoint), synth, options.pieces, options.seconds)
    settings = tune(pieces)
    card = {
        **transcriber.card,
        "name": options.name,
        "config": {**transcriber.config.to_json(), "name": options.name},
        "tracker": dataclasses.asdict(settings),
        "sources": sources(options.synth),
    }
    path = options.out / f"{options.name}.safetensors"
    save_checkpoint(transcriber, card, path, half=True)
    (options.out / f"{options.name}.md").write_text(model_card(card))
    logger.info("%s: %.1f MiB", path.name, path.stat().st_size / 2**20)
    return 0


def sources(synth: Path) -> dict[str, list[dict[str, Any]]]:
    """Licences and attributions of the note bank and the scores."""
    bank = json.loads((synth / "bank_index.json").read_text())["instruments"]
    pieces = json.loads((synth / "midi_index.json").read_text())["pieces"]
    sounds: dict[tuple[str, str], list[str]] = {}
    for name, entry in bank.items():
        sounds.setdefault((entry["attribution"], entry["licence"]), []).append(name)
    scores = Counter((piece["source"], piece["licence"]) for piece in pieces)
    return {
        "sounds": [
            {"attribution": who, "licence": licence, "instruments": names}
            for (who, licence), names in sounds.items()
        ],
        "scores": [
            {"source": where, "licence": licence, "pieces": count}
            for (where, licence), count in sorted(scores.items())
        ],
    }


def model_card(card: dict[str, Any]) -> str:
    """The card as a page to read; what is measured on recordings is added to it by hand."""
    training, validation = card["training"], card["validation"]
    lines = [
        f"# Model card: {card['name']}",
        "",
        f"Trained for {training['hours']:.2f} h ({training['steps']} steps of "
        f"{card['data']['batch_size']} windows) on synthesised audio alone: recorded single notes "
        "of the instruments below play the scores below, humanised, detuned, in made-up rooms "
        "and with noise. No recording of a performance was used.",
        "",
        "## Validation (held-out instruments and scores)",
        "",
        "| figure | value |",
        "|---|---|",
        *(f"| {name} | {value:.3f} |" for name, value in validation.items()),
        "",
        "Frame and onset average precision at one frame per window, for each look-ahead.",
        "",
        "## Note tracker thresholds (chosen on held-out instruments)",
        "",
        *(f"- `{name}`: {value}" for name, value in card["tracker"].items()),
        "",
        "## Training material and attributions",
        "",
        *(
            f"- {sound['attribution']} ({sound['licence']}): {', '.join(sound['instruments'])}"
            for sound in card["sources"]["sounds"]
        ),
        *(
            f"- {score['source']} ({score['licence']}): {score['pieces']} pieces"
            for score in card["sources"]["scores"]
        ),
        "",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
