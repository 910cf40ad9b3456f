"""Model cards: how shipped weights were trained, how accurate they are and where they fail.

``python -m training.shipping.card model/weights/live.safetensors maps=maps.json``
adds figures measured by ``training.evaluate real --json`` to the card of shipped weights and writes
its page again. Whatever the code cannot know may be in the JSON card's ``remark``.
"""

import json
import sys
from pathlib import Path
from typing import Any

from model.commands import documented_parser
from model.storage import read_card, write_whole
from training.loop.warm_start import stages
from training.music.metrics import FIGURES
from training.shipping.sources import Sources, attributions

KNOWN_FAILURES = """\
- Offsets are much less reliable than onsets, as onset + offset F1 shows: the sustain pedal,
  resonance and rooms prolong notes after the keys are released.
- Below 100 ms of look-ahead all figures are noticeably worse, especially for onsets.
- Speech and hi-hats occasionally produce false notes (`python -m training.evaluate junk`).
"""
CLASSIFIER = "The classifier of onsets is fitted, not tuned: to other rendered validation pieces"
ALSO_FITTED = {
    "recordings": "to the recordings of training",
    "backgrounds": "to the speech, drums and noise of training",
}
"""What else the classifier learned from, by group of sources."""


def main(arguments: list[str] | None = None) -> int:
    parser = documented_parser("training.shipping.card", __doc__)
    parser.add_argument("weights", type=Path, help="a .safetensors file with its card")
    parser.add_argument("figures", nargs="*", help="SET=FILE, as written by training.evaluate")
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
    """Writes the card beside the weights, as JSON and as a page to read."""
    write_whole(weights.with_suffix(".json"), json.dumps(card, indent=1).encode())
    write_whole(weights.with_suffix(".md"), model_card(card).encode())


def model_card(card: dict[str, Any]) -> str:
    all_stages = stages(card)
    sources = card.get("sources", {})  # a run that is not shipped has none yet
    lines = [
        f"# Model card: {card['name']}",
        "",
        f"Trained for {sum(stage['hours'] for stage in all_stages):.2f} h "
        f"({sum(map(_windows, all_stages)) / 1e6:.2f} million windows of 0.74 s) on "
        f"{_material(card['data'], bool(sources.get('recordings')))}",
        "",
        *_stages_table(all_stages),
        *([card["remark"], ""] if "remark" in card else []),
        *_recording_tables(card.get("recordings", {})),
        "## Validation (held-out instruments and scores)",
        "",
        "| figure | value |",
        "|---|---|",
        *(f"| {name} | {value:.3f} |" for name, value in card["validation"].items()),
        "",
        "Average precision of frames and onsets at one frame per window, for each look-ahead.",
        "",
        "## Known failures",
        "",
        *_limits(all_stages, sources),
        KNOWN_FAILURES,
        "## Note tracker settings",
        "",
        *([_fitted(sources), ""] if card["tracker"].get("onset_classifier") else []),
        "Thresholds, lengths and the other numbers are tuned on validation material.",
        "",
        *(f"- `{name}`: {_shown(value)}" for name, value in card["tracker"].items()),
        "",
        *(["## Training data and attributions", "", *attributions(sources)] if sources else []),
    ]
    return "\n".join(lines)


def _material(data: dict[str, Any], real: bool) -> str:
    if "synth" not in data:
        return f"{data['recordings']} recordings of {data['archive']}."
    held_out = data["synth"]["held_out"]  # of older cards a dictionary
    names = ", ".join(held_out.values() if isinstance(held_out, dict) else held_out)
    learned = " and real recordings aligned with their scores" if real else " only"
    return (
        f"synthesised audio{learned}. Synthesised audio plays the scores below with recorded "
        "notes of the instruments below, humanised, detuned, "
        "in simulated rooms (and measured ones where listed) and with noise. The sustain pedal "
        f"holds notes for at most {data['synth']['pedal_cap_s']:g} s. Held out for validation: "
        f"{names}, and the validation and test scores."
    )


def _limits(all_stages: list[dict[str, Any]], sources: Sources) -> list[str]:
    """Known failures for what the training audio lacks."""
    synths = [stage["synth"] for stage in all_stages]
    if None in synths:
        return []
    real = max((one.get("real_probability", 0.0) for one in synths), default=0.0)
    part = f"At most {100 * real:g} %" if sources.get("recordings") else "None"
    lines = [
        f"- {part} of the training excerpts are recordings of music; real rooms, pedalling and",
        "  touch differ from those of the rest.",
        "- Training audio has speech and drums only as sounds without notes.",
    ]
    alone = "- Training audio has only the instruments listed below."
    return [*lines, alone] if sources.get("sounds") else lines


def _fitted(sources: Sources) -> str:
    also = (words for group, words in ALSO_FITTED.items() if sources.get(group))
    return ", ".join((CLASSIFIER, *also)) + "."


def _shown(setting: Any) -> str:
    """A setting of the tracker; the numbers of a classifier are only in the JSON card."""
    if not isinstance(setting, dict):
        return str(setting)
    return "layers of " + ", ".join(str(len(biases)) for _, biases in setting["layers"])


def _windows(stage: dict[str, Any]) -> int:
    return int(stage["steps"] * stage["batch_size"])


def _stages_table(all_stages: list[dict[str, Any]]) -> list[str]:
    """The stages of training, each starting from the weights of the previous one."""
    if len(all_stages) < 2:
        return []
    return [
        "| stage | network | windows | hours | peak learning rate |",
        "|---:|---|---:|---:|---:|",
        *(
            f"| {number} | {stage['name']} | {_windows(stage)} | {stage['hours']:.2f} | "
            f"{stage['learning_rate']:g} |"
            for number, stage in enumerate(all_stages, start=1)
        ),
        "",
        "Each stage starts from the weights of the previous one; the JSON card lists the settings "
        "of its training audio.",
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
            cells = [f"{name} ({one['count']})", f"{one['lookahead_ms']:g} ms"]
            cells += [f"{one['block_frames']} frames"]
            cells += [f"{one['mean'][figure]:.3f}" for figure in FIGURES]
            lines.append(f"| {' | '.join(cells)} |")
    return [
        *lines,
        "",
        "Means over recordings. frame_ap: all frames x 128 notes; frame_f1: the emitted notes; "
        "onset_f1 (50 ms) and onset_offset_f1: mir_eval. No setting was tuned on them.",
        "",
    ]


if __name__ == "__main__":
    sys.exit(main())
