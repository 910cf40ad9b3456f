"""Model cards: how shipped weights were trained, how accurate they are and where they fail.

``python -m training.shipping.card model/weights/live.safetensors maps=maps.json``
adds figures measured by ``training.evaluate real --json`` to the card of shipped weights and writes
its page again. Whatever the code cannot know may be in the JSON card's ``remark``.
"""

import json
import re
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from model.commands import documented_parser
from model.storage import read_card, write_whole
from training.loop.warm_start import stages
from training.music.metrics import FIGURES
from training.music.synth.config import SynthConfig
from training.music.synth.scores import index_entries, indexes

Sources = dict[str, list[dict[str, Any]]]
TITLES = {
    "sounds": "Instruments",
    "releases": "Noises of keys and pedals, resonance of strings",
    "rooms": "Rooms",
    "backgrounds": "Backgrounds, voices and drums",
    "voices": "Voices that are made to sing",
    "phrases": "Phrases, for instruments alone",
    "scores": "Scores and performances",
    "recordings": "Real recordings",
    "recorded_scores": "Scores of these recordings",
}
"""Headings of the groups of sources, in the order of the page."""
REQUIRED = "bank_index.json"
ATTRIBUTIONS = "ATTRIBUTIONS.md"  # the page beside the cards with the sources of all weights
_SHARE_ALIKE = re.compile(r"\bSA\b|ShareAlike", re.IGNORECASE)


def sources(synth: SynthConfig) -> Sources:
    """Licences and attributions of everything that a training run could use.

    Groups that are not in the data folder are empty.
    """

    def read(index: str, key: str) -> Any:
        path = synth.root / index
        missing = index != REQUIRED and not path.exists()
        return [] if missing else json.loads(path.read_text())[key]

    bank = read(REQUIRED, "instruments")
    voices = [*read("voices/speech.json", "files"), *read("voices/singing.json", "files")]
    phrases = synth.root / "phrases.json"
    clips = json.loads(phrases.read_text()) if phrases.exists() else []
    pieces = [piece for index in indexes(synth.root) for piece in index_entries(index)]
    scores = Counter((piece["source"], piece["licence"]) for piece in pieces)
    groups = {
        "sounds": _grouped(bank.items()),
        "releases": _grouped(dict(read("releases/releases.json", "sets")).items()),
        "rooms": _grouped((r["name"].rpartition("_")[0], r) for r in read("rooms.json", "rooms")),
        "backgrounds": _grouped((Path(n["file"]).stem, n) for n in read("noise.json", "segments")),
        "voices": _grouped((one.get("speaker") or one["singer"], one) for one in voices),
        "phrases": _grouped((one["class"], one) for one in clips),
        "scores": [
            {"attribution": where, "licence": licence, "pieces": count}
            for (where, licence), count in sorted(scores.items())
        ],
    }
    if synth.real_root is not None:
        entries = json.loads((synth.real_root / "index.json").read_text())
        used = [e for e in entries if e.get("score") or e.get("label_kind")]
        real = {e["id"]: e for e in used if e["id"] not in synth.real_left_out}
        written = {
            name: {"attribution": entry["score_attribution"], "licence": entry["score_licence"]}
            for name, entry in real.items()
            if entry.get("score")
        }
        groups["recordings"] = _grouped(real.items())
        groups["recorded_scores"] = _grouped(written.items())
    return groups


def _grouped(entries: Iterable[tuple[str, dict[str, Any]]]) -> list[dict[str, Any]]:
    """Names grouped by attribution and licence, in order of first appearance."""
    groups: dict[tuple[str, str], dict[str, None]] = {}
    for name, entry in entries:
        licence = re.sub(r", see [^)]*", "", entry["licence"])  # a reference to other documents
        groups.setdefault((entry["attribution"], licence), {})[name] = None
    return [
        {"attribution": who, "licence": licence, "instruments": list(names)}
        for (who, licence), names in groups.items()
    ]


def attributions(by_weights: dict[str, Sources]) -> str:
    """The page with every source of these weights and its licence, share-alike ones first."""
    merged: dict[tuple[str, str], dict[str, Any]] = {}  # by group, and by attribution and licence
    users: dict[tuple[str, str], list[str]] = {}
    for weights, found in by_weights.items():
        for group, one in ((g, one) for g in TITLES for one in found.get(g, [])):
            key = group, f"{one['attribution']} ({one['licence']})"
            other = merged.get(key, one)
            if "pieces" in one:
                merged[key] = one | {"pieces": max(one["pieces"], other["pieces"])}
            else:
                names = dict.fromkeys([*other["instruments"], *one["instruments"]])
                merged[key] = one | {"instruments": list(names)}
            users.setdefault(key, []).append(weights)
    page = [
        "# Attributions",
        "",
        f"What the weights {', '.join(by_weights)} were trained on, with licences; if not all of "
        "them used a source, those that did are in brackets. Written by `training.shipping.card`.",
        "",
    ]
    for heading, alike in (("Share-alike licences", True), ("Other licences", False)):
        page += [f"## {heading}", ""]
        for group, title in TITLES.items():
            held = {
                name: one
                for (of_group, name), one in merged.items()
                if of_group == group and shares_alike(one) == alike
            }
            page += [f"{title}:", ""] if held else []
            for name, one in held.items():
                what = f"{one['pieces']} pieces" if "pieces" in one else None
                who = users[group, name]
                some = f" [{', '.join(who)}]" if len(set(who)) < len(by_weights) else ""
                page.append(f"- {name}: {what or ', '.join(one['instruments'])}{some}")
            page += [""] if held else []
    return "\n".join(page)


def shares_alike(source: dict[str, Any]) -> bool:
    """Whether altered copies of a source must be shared under its own licence."""
    return bool(_SHARE_ALIKE.search(source["licence"]))


KNOWN_FAILURES = """\
- Offsets are much less reliable than onsets, as onset + offset F1 shows: the sustain pedal,
  resonance and rooms prolong notes after the keys are released.
- Below 100 ms of look-ahead all figures are noticeably worse, especially for onsets.
- Speech and hi-hats occasionally produce false notes (`python -m training.evaluate junk`).
"""


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
    """Write the card beside the weights, as JSON and as a page, and the folder's attributions."""
    write_whole(weights.with_suffix(".json"), json.dumps(card, indent=1).encode())
    write_whole(weights.with_suffix(".md"), model_card(card).encode())
    if page := folder_attributions(weights.parent):
        write_whole(weights.with_name(ATTRIBUTIONS), page.encode())


def folder_attributions(folder: Path) -> str:
    """The attributions of all weights in a folder; empty if they name no sources."""
    cards = [read_card(path) for path in sorted(folder.glob("*.safetensors"))]
    named = {card["name"]: card["sources"] for card in cards if card.get("sources")}
    return attributions(named) if named else ""


def model_card(card: dict[str, Any]) -> str:
    all_stages = stages(card)
    sources = card.get("sources", {})  # a run that is not shipped has none yet
    windows = [int(stage["steps"] * stage["batch_size"]) for stage in all_stages]
    lines = [
        f"# Model card: {card['name']}",
        "",
        f"Trained for {sum(stage['hours'] for stage in all_stages):.2f} h "
        f"({sum(windows) / 1e6:.2f} million windows of 0.74 s) on "
        f"{_material(card['data'], bool(sources.get('recordings')))}",
        "",
    ]
    if len(all_stages) > 1:
        lines += ["| stage | network | windows | hours | peak learning rate |"]
        lines += ["|---:|---|---:|---:|---:|"]
        lines += [
            f"| {number} | {stage['name']} | {count} | {stage['hours']:.2f} | "
            f"{stage['learning_rate']:g} |"
            for number, (stage, count) in enumerate(zip(all_stages, windows, strict=True), start=1)
        ]
        lines += [
            "",
            "Each stage starts from the weights of the previous one; the JSON card lists the "
            "settings of its training audio.",
            "",
        ]
    lines += [
        *([card["remark"], ""] if "remark" in card else []),
        *_recording_tables(card.get("recordings", {})),
        *_validation(card["validation"]),
        "## Known failures",
        "",
        *_limits(all_stages, sources),
        KNOWN_FAILURES,
        f"The note tracker's settings, tuned on validation material, are in `{card['name']}.json`.",
        *([f"[{ATTRIBUTIONS}]({ATTRIBUTIONS}) lists every source and licence."] if sources else []),
        "",
    ]
    return "\n".join(lines)


def _material(data: dict[str, Any], real: bool) -> str:
    if "synth" not in data:
        return f"{data['recordings']} recordings of {data['archive']}."
    held_out = data["synth"]["held_out"]  # of older cards a dictionary
    names = ", ".join(held_out.values() if isinstance(held_out, dict) else held_out)
    learned = " and real recordings aligned with their scores" if real else " only"
    return (
        f"synthesised audio{learned}. Synthesised audio plays scores with recorded notes of "
        "instruments, humanised, detuned, in rooms and with noise. The sustain pedal "
        f"holds notes for at most {data['synth']['pedal_cap_s']:g} s. Held out for validation: "
        f"{names}, and the validation and test scores."
    )


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
    for name, one in ((name, one) for name, reports in recordings.items() for one in reports):
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


def _validation(figures: dict[str, float]) -> list[str]:
    """A row for each look-ahead, then what has none."""
    aimed = {name: re.fullmatch(r"(\w+)_(\d+)ms", name) for name in figures}
    kinds = list(dict.fromkeys(one[1] for one in aimed.values() if one))
    lines = [
        "## Validation (held-out instruments and scores)",
        "",
        "| look-ahead | " + " | ".join(kinds) + " |",
        "|---" * (1 + len(kinds)) + "|",
    ]
    for ms in sorted({int(one[2]) for one in aimed.values() if one}):
        names = [f"{kind}_{ms}ms" for kind in kinds]
        cells = [f"{figures[name]:.3f}" if name in figures else "" for name in names]
        lines.append(f"| {ms} ms | {' | '.join(cells)} |")
    rest = ", ".join(f"{name} {figures[name]:.3f}" for name, one in aimed.items() if not one)
    return [*lines, "", f"Average precision, one frame per window. {rest}.", ""]


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
    alone = f"- Training audio has only the instruments of {ATTRIBUTIONS}."
    return [*lines, alone] if sources.get("sounds") else lines


if __name__ == "__main__":
    sys.exit(main())
