"""Model cards: what shipped weights were made of, what they can do and where they fail.

``python -m training.shipping.card model/weights/live.safetensors maps=maps.json``
adds the figures that ``training.evaluate real --json`` measured to the card of shipped weights.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from model.storage import read_card, write_whole
from training.loop.warm_start import stages
from training.music.metrics import FIGURES
from training.shipping.sources import attributions

KNOWN_FAILURES = """\
- Trained mostly or only on synthesised audio: real rooms, pedalling and touch differ from it.
- Ends of notes are much less certain than beginnings, as onset + offset F1 shows: the sustain
  pedal, resonance and rooms hold notes longer than the hands do.
- With less than 100 ms of look-ahead all figures are noticeably worse, onsets above all.
- Talk and hi-hats are still taken for notes now and then (`python -m training.evaluate junk`).
- Synthesisers are not in the training material, singing as a few sung vowels at most; talk and
  drums are there as sounds without notes.
"""


def main(arguments: list[str] | None = None) -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("weights", type=Path, help="a .safetensors file with its card")
    parser.add_argument("figures", nargs="+", help="SET=FILE, as written by training.evaluate")
    options = parser.parse_args(arguments)
    card = read_card(options.weights)
    recordings = card.setdefault("recordings", {})
    for argument in options.figures:
        name, _, file = argument.partition("=")
        report = json.loads(Path(file).read_text())
        recordings[name] = [
            {key: one[key] for key in ("lookahead_ms", "block_frames", "label_shift_ms", "mean")}
            | {"count": len(one["recordings"])}
            for one in report.get("by_lookahead", [report])
        ]
    write_card(options.weights, card)
    return 0


def write_card(weights: Path, card: dict[str, Any]) -> None:
    """The JSON and the page beside the weights."""
    write_whole(weights.with_suffix(".json"), json.dumps(card, indent=1).encode())
    write_whole(weights.with_suffix(".md"), model_card(card).encode())


def model_card(card: dict[str, Any]) -> str:
    """The card as a page to read."""
    data, all_stages = card["data"], stages(card)
    held_out = ", ".join(data["synth"]["held_out"].values())
    real = card["sources"].get("recordings")
    learned = " and real recordings, aligned with their scores" if real else " alone"
    lines = [
        f"# Model card: {card['name']}",
        "",
        f"Trained for {sum(stage['hours'] for stage in all_stages):.2f} h "
        f"({sum(stage['steps'] for stage in all_stages)} steps of "
        f"{data['batch_size']} windows of 0.74 s) on synthesised audio{learned}: recorded single "
        "notes of the instruments below play the scores below, humanised, detuned, in rooms (made "
        "up and, where listed, measured) and with noise. The sustain pedal holds notes for "
        f"{data['synth']['pedal_cap_s']:g} s at most. Never trained on, for validation: "
        f"{held_out}, and the validation and test scores.",
        "",
        *_stages_table(all_stages),
        *_recording_tables(card.get("recordings", {})),
        "## Validation (held-out instruments and scores)",
        "",
        "| figure | value |",
        "|---|---|",
        *(f"| {name} | {value:.3f} |" for name, value in card["validation"].items()),
        "",
        "Average precision of frames and of onsets at one frame a window, for each look-ahead.",
        "",
        "## Known failures",
        "",
        KNOWN_FAILURES,
        "## Note tracker settings (chosen on validation material)",
        "",
        *(f"- `{name}`: {value}" for name, value in card["tracker"].items()),
        "",
        "## Training material and attributions",
        "",
        *attributions(card["sources"]),
    ]
    return "\n".join(lines)


def _stages_table(all_stages: list[dict[str, Any]]) -> list[str]:
    """What was trained one after the other, each on the weights of the one before."""
    if len(all_stages) < 2:
        return []
    return [
        "| stage | network | steps | hours | peak learning rate |",
        "|---:|---|---:|---:|---:|",
        *(
            f"| {number} | {stage['name']} | {stage['steps']} | {stage['hours']:.2f} | "
            f"{stage['learning_rate']:g} |"
            for number, stage in enumerate(all_stages, start=1)
        ),
        "",
        "Each stage begins with the weights of the one before; the JSON card tells the settings "
        "of the material of each.",
        "",
    ]


def _recording_tables(recordings: dict[str, list[dict[str, Any]]]) -> list[str]:
    """Means over each set of recordings, a row for each look-ahead."""
    if not recordings:
        return []
    lines = [
        "## Real recordings, through the streaming path",
        "",
        "| recordings | look-ahead | block | " + " | ".join(FIGURES) + " |",
        "|---" * (3 + len(FIGURES)) + "|",
    ]
    for name, reports in recordings.items():
        for one in reports:
            cells = " | ".join(f"{one['mean'][figure]:.3f}" for figure in FIGURES)
            lines.append(
                f"| {name} ({one['count']}) | {one['lookahead_ms']:g} ms | "
                f"{one['block_frames']} frames | {cells} |"
            )
    return [
        *lines,
        "",
        "Means over recordings. frame_ap: all frames x 128 notes; frame_f1: of the emitted notes; "
        "onset_f1 (50 ms) and onset_offset_f1 by mir_eval. No threshold was chosen on them.",
        "",
    ]


if __name__ == "__main__":
    sys.exit(main())
