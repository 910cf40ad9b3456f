"""Model cards: the training, the known failures and the sources of shipped weights."""

import json
import re
import reprlib
from collections import Counter
from collections.abc import Iterable
from itertools import chain
from pathlib import Path
from typing import Any

from model.storage import read_card, write_atomically
from training.loop.run_folder import stages
from training.music.real import LEFT_OUT
from training.music.synth.config import SynthConfig
from training.music.synth.scores import index_entries, indexes

Sources = dict[str, list[dict[str, Any]]]
TITLES = {
    "sounds": "Instruments",
    "releases": "Noises of keys and pedals, resonance of strings",
    "rooms": "Rooms",
    "backgrounds": "Backgrounds, voices and drums",
    "voices": "Voices for synthetic singing",
    "phrases": "Unaccompanied phrases",
    "scores": "Scores and performances",
    "recordings": "Real recordings",
    "recorded_scores": "Scores of the real recordings",
}
"""Headings of the groups of sources, in the order in which the page lists them."""
REQUIRED = "bank_index.json"
ATTRIBUTIONS = "ATTRIBUTIONS.md"  # page with the sources of all weights in the folder
_SHARE_ALIKE = re.compile(r"\bSA\b|ShareAlike", re.IGNORECASE)


def sources(synth: SynthConfig) -> Sources:
    """Return licences and attributions of all data that a training run could use. Groups that the
    data folder lacks are empty. Raises ValueError for an entry without licence or attribution, and
    OSError for a missing required index."""

    def read(index: str, key: str = "") -> Any:
        path = synth.root / index
        if index != REQUIRED and not path.exists():
            return []
        index_data = json.loads(path.read_text())
        return index_data[key] if key else index_data

    bank = read(REQUIRED, "instruments")
    voices = [*read("voices/speech.json", "files"), *read("voices/singing.json", "files")]
    pieces = [piece for index in indexes(synth.root) for piece in index_entries(index)]
    scores = Counter((_required(piece, "source"), _required(piece, "licence")) for piece in pieces)
    groups = {
        "sounds": _grouped(bank.items()),
        "releases": _grouped(dict(read("releases/releases.json", "sets")).items()),
        "rooms": _grouped((r["name"].rpartition("_")[0], r) for r in read("rooms.json", "rooms")),
        "backgrounds": _grouped((Path(n["file"]).stem, n) for n in read("noise.json", "segments")),
        "voices": _grouped((voice.get("speaker") or voice["singer"], voice) for voice in voices),
        "phrases": _grouped((phrase["class"], phrase) for phrase in read("phrases.json")),
        "scores": [
            {"attribution": origin, "licence": licence, "pieces": count}
            for (origin, licence), count in sorted(scores.items())
        ],
    }
    if synth.real_root is not None:
        entries = json.loads((synth.real_root / "index.json").read_text())
        labelled = [e for e in entries if e.get("score") or e.get("label_kind")]
        recordings = {e["id"]: e for e in labelled if e["id"] not in LEFT_OUT}
        recorded_scores = {
            name: {key: _required(entry, f"score_{key}") for key in ("attribution", "licence")}
            for name, entry in recordings.items()
            if entry.get("score")
        }
        groups["recordings"] = _grouped(recordings.items())
        groups["recorded_scores"] = _grouped(recorded_scores.items())
    return groups


def _grouped(entries: Iterable[tuple[str, dict[str, Any]]]) -> list[dict[str, Any]]:
    """Return names grouped by attribution and licence, in order of first appearance."""
    groups: dict[tuple[str, str], dict[str, None]] = {}
    for name, entry in entries:
        licence = re.sub(r", see [^)]*", "", _required(entry, "licence"))  # omit references
        groups.setdefault((_required(entry, "attribution"), licence), {})[name] = None
    return [
        {"attribution": attribution, "licence": licence, "instruments": list(names)}
        for (attribution, licence), names in groups.items()
    ]


def _required(entry: dict[str, Any], key: str) -> str:
    if not entry.get(key):
        raise ValueError(f"the training data have an entry without {key}: {reprlib.repr(entry)}")
    return str(entry[key])


def with_sources(card: dict[str, Any], more: Sources) -> dict[str, Any]:
    """Return the card with the distinct ``sources`` of all its stages of training and ``more``."""
    merged: dict[str, dict[tuple[str, str], dict[str, Any]]] = {}
    for groups in (*(stage.get("sources", {}) for stage in stages(card)), more):
        for group, entries in groups.items():
            of_group = merged.setdefault(group, {})
            for source in entries:
                origin = source["attribution"], source["licence"]
                known = of_group.setdefault(origin, {**source})
                if "pieces" in source:
                    known["pieces"] = max(known["pieces"], source["pieces"])
                else:
                    names = [*known["instruments"], *source["instruments"]]
                    known["instruments"] = list(dict.fromkeys(names))
    earlier = [
        {name: value for name, value in stage.items() if name != "sources"}
        for stage in card["training"].get("earlier", [])
    ]
    return {
        **card,
        "training": {**card["training"], "earlier": earlier},
        "sources": {group: list(of_group.values()) for group, of_group in merged.items()},
    }


def attributions(by_weights: dict[str, Sources]) -> str:
    """Return the page of all sources of these weights with licences, share-alike first."""
    page = [
        "# Attributions",
        "",
        f"Sources of the training data of the weights {', '.join(by_weights)}, with licences. If "
        "only some of the weights used a source, they are listed in brackets. "
        "`training.shipping.ship` writes this page.",
        "",
    ]
    for heading, is_share_alike in (("Share-alike licences", True), ("Other licences", False)):
        page += [f"## {heading}", ""]
        for group, title in TITLES.items():
            uses: dict[str, list[tuple[str, dict[str, Any]]]] = {}  # by attribution and licence
            for weights, groups in by_weights.items():
                for source in groups.get(group, []):
                    if shares_alike(source) == is_share_alike:
                        origin = f"{source['attribution']} ({source['licence']})"
                        uses.setdefault(origin, []).append((weights, source))
            if uses:
                lines = [_attribution(origin, uses[origin], len(by_weights)) for origin in uses]
                page += [f"{title}:", "", *lines, ""]
    return "\n".join(page)


def _attribution(origin: str, uses: list[tuple[str, dict[str, Any]]], weights_count: int) -> str:
    """Return a line with a source's origin, its instruments or number of pieces, and the weights
    that used it, unless all did. uses: pairs of the name of weights and the source."""
    names = dict.fromkeys(chain(*(source.get("instruments", []) for _, source in uses)))
    contents = ", ".join(names) or f"{max(source['pieces'] for _, source in uses)} pieces"
    users = dict.fromkeys(weights for weights, _ in uses)
    suffix = f" [{', '.join(users)}]" if len(users) < weights_count else ""
    return f"- {origin}: {contents}{suffix}"


def shares_alike(source: dict[str, Any]) -> bool:
    """Return True if altered copies of a source must be shared under its own licence."""
    return bool(_SHARE_ALIKE.search(source["licence"]))


def write_card(weights: Path, card: dict[str, Any]) -> None:
    """Write the card as JSON and as a page, and the attributions of the folder."""
    write_atomically(weights.with_suffix(".json"), json.dumps(card, indent=1).encode())
    write_atomically(weights.with_suffix(".md"), model_card(card).encode())
    if page := folder_attributions(weights.parent):
        write_atomically(weights.with_name(ATTRIBUTIONS), page.encode())


def folder_attributions(folder: Path) -> str:
    """Return the attributions of all weights in a folder; empty if they have no sources."""
    cards = [read_card(path) for path in sorted(folder.glob("*.safetensors"))]
    named = {card["name"]: card["sources"] for card in cards if card.get("sources")}
    return attributions(named) if named else ""


PAGE = f"""\
# Model card: {{name}}

Trained for {{hours:.2f}} h ({{millions:.2f}} million windows of 0.74 s) on {{material}}.
Each stage starts from the weights of the previous stage. `{{name}}.json` has the settings of the
training audio, the data held out for validation, and the settings of the note tracker.

| stage | network | windows | hours | peak learning rate |
|---:|---|---:|---:|---:|
{{stages}}

{{remark}}Validation on held-out data (`ap` is average precision, a suffix in ms is the look-ahead):
{{figures}}.

[RESULTS.md](../../training/RESULTS.md#transcription) lists the accuracy on recordings, and
[{ATTRIBUTIONS}]({ATTRIBUTIONS}) lists every source and its licence.

**Known failures.** Offsets are much less reliable than onsets, because pedal, resonance and rooms
prolong notes. Below 100 ms of look-ahead all figures are worse, especially for onsets. Speech and
hi-hats sometimes cause false notes. Instruments that are not in the training data may be
classified as others.{{share}}
"""


def model_card(card: dict[str, Any]) -> str:
    """Return the page of a card."""
    trained = [(int(stage["steps"] * stage["batch_size"]), stage) for stage in stages(card)]
    material, share = "rendered music", ""
    if card.get("sources", {}).get("recordings"):
        material += " and real recordings with scores or note labels"
        settings = [stage["synth"] or {} for _, stage in trained]
        largest = max(synth.get("real_probability", 0) for synth in settings)
        part = "a quarter" if largest == 0.25 else f"{100 * largest:g} %"
        share = f"\nAt most {part} of the training excerpts are recordings of music."
    return PAGE.format(
        name=card["name"],
        hours=sum(stage["hours"] for _, stage in trained),
        millions=sum(windows for windows, _ in trained) / 1e6,
        material=material,
        share=share,
        stages="\n".join(
            f"| {number} | {stage['name']} | {windows} | {stage['hours']:.2f} | "
            f"{stage['learning_rate']:g} |"
            for number, (windows, stage) in enumerate(trained, start=1)
        ),
        remark=f"{card['remark']}\n\n" if "remark" in card else "",
        figures=", ".join(f"{name} {value:.3f}" for name, value in card["validation"].items()),
    )
