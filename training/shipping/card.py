"""Model cards: how shipped weights were trained and where they fail, and whom they owe it to."""

import json
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from model.storage import read_card, write_whole
from training.loop.run_folder import stages
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
    """Licences and attributions of everything that a training run could use. Groups that are not in
    the data folder are empty."""

    def read(index: str, key: str = "") -> Any:
        path = synth.root / index
        if index != REQUIRED and not path.exists():
            return []
        found = json.loads(path.read_text())
        return found[key] if key else found

    bank = read(REQUIRED, "instruments")
    voices = [*read("voices/speech.json", "files"), *read("voices/singing.json", "files")]
    pieces = [piece for index in indexes(synth.root) for piece in index_entries(index)]
    scores = Counter((piece["source"], piece["licence"]) for piece in pieces)
    groups = {
        "sounds": _grouped(bank.items()),
        "releases": _grouped(dict(read("releases/releases.json", "sets")).items()),
        "rooms": _grouped((r["name"].rpartition("_")[0], r) for r in read("rooms.json", "rooms")),
        "backgrounds": _grouped((Path(n["file"]).stem, n) for n in read("noise.json", "segments")),
        "voices": _grouped((one.get("speaker") or one["singer"], one) for one in voices),
        "phrases": _grouped((one["class"], one) for one in read("phrases.json")),
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
    page = [
        "# Attributions",
        "",
        f"What the weights {', '.join(by_weights)} were trained on, with licences; if not all of "
        "them used a source, those that did are in brackets. Written by `training.shipping.ship`.",
        "",
    ]
    for heading, alike in (("Share-alike licences", True), ("Other licences", False)):
        page += [f"## {heading}", ""]
        for group, title in TITLES.items():
            named: dict[str, dict[str, None]] = {}  # what is used of each source
            pieces: dict[str, int] = {}
            users: dict[str, dict[str, None]] = {}
            for weights, found in by_weights.items():
                for one in found.get(group, []):
                    if shares_alike(one) == alike:
                        source = f"{one['attribution']} ({one['licence']})"
                        named.setdefault(source, {}).update(
                            dict.fromkeys(one.get("instruments", []))
                        )
                        pieces[source] = max(one.get("pieces", 0), pieces.get(source, 0))
                        users.setdefault(source, {})[weights] = None
            page += [f"{title}:", ""] if named else []
            for source, names in named.items():
                what = ", ".join(names) or f"{pieces[source]} pieces"
                some = (
                    f" [{', '.join(users[source])}]" if len(users[source]) < len(by_weights) else ""
                )
                page.append(f"- {source}: {what}{some}")
            page += [""] if named else []
    return "\n".join(page)


def shares_alike(source: dict[str, Any]) -> bool:
    """Whether altered copies of a source must be shared under its own licence."""
    return bool(_SHARE_ALIKE.search(source["licence"]))


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


RENDERED = f"""\
- At most a quarter of the training excerpts are recordings of music; real rooms, pedalling and
  touch differ from those of the rest. Training audio has only the instruments of {ATTRIBUTIONS}."""
KNOWN_FAILURES = """\
- Offsets are much less reliable than onsets, as onset + offset F1 shows: the sustain pedal,
  resonance and rooms prolong notes after the keys are released.
- Below 100 ms of look-ahead all figures are noticeably worse, especially for onsets.
- Speech and hi-hats occasionally produce false notes (`python -m training.evaluate families`).
"""


def model_card(card: dict[str, Any]) -> str:
    all_stages = stages(card)
    windows = [int(stage["steps"] * stage["batch_size"]) for stage in all_stages]
    figures = (f"{name} {value:.3f}" for name, value in card["validation"].items())
    rows = [
        f"| {number} | {stage['name']} | {count} | {stage['hours']:.2f} | "
        f"{stage['learning_rate']:g} |"
        for number, (stage, count) in enumerate(zip(all_stages, windows, strict=True), start=1)
    ]
    lines = [
        f"# Model card: {card['name']}",
        "",
        f"Trained for {sum(stage['hours'] for stage in all_stages):.2f} h "
        f"({sum(windows) / 1e6:.2f} million windows of 0.74 s) on {_material(card)} Each stage "
        "starts from the weights of the previous one; the JSON card lists the settings of its "
        "training audio.",
        "",
        "| stage | network | windows | hours | peak learning rate |",
        "|---:|---|---:|---:|---:|",
        *rows,
        "",
        *([card["remark"], ""] if "remark" in card else []),
        "On validation (held-out instruments and scores; average precision by look-ahead, one "
        f"frame a window): {', '.join(figures)}.",
        "",
        "## Known failures",
        "",
        *([RENDERED] if "synth" in card["data"] else []),
        KNOWN_FAILURES,
        f"The note tracker's settings, tuned on validation material, are in `{card['name']}.json`;",
        "[RESULTS.md](../../training/RESULTS.md#transcription) has the accuracy on recordings.",
        *(
            [f"[{ATTRIBUTIONS}]({ATTRIBUTIONS}) lists every source and licence."]
            if card.get("sources")
            else []
        ),
        "",
    ]
    return "\n".join(lines)


def _material(card: dict[str, Any]) -> str:
    data = card["data"]
    if "synth" not in data:
        return f"{data['recordings']} recordings of {data['archive']}."
    held_out = data["synth"]["held_out"]  # of older cards a dictionary
    names = ", ".join(held_out.values() if isinstance(held_out, dict) else held_out)
    real = card.get("sources", {}).get("recordings")
    learned = " and real recordings aligned with their scores" if real else " only"
    return (
        f"synthesised audio{learned}. Synthesised audio plays scores with recorded notes of "
        "instruments, humanised, detuned, in rooms and with noise. Held out for validation: "
        f"{names}, and the validation and test scores."
    )
