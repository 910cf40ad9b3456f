"""The sources of the training data with their licences and attributions, for the model card."""

import json
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from training.music.synth.config import SynthConfig
from training.music.synth.scores import index_entries, indexes

Sources = dict[str, list[dict[str, Any]]]
TITLES = {
    "sounds": "Instruments",
    "releases": "Noises of keys and pedals, resonance of strings",
    "rooms": "Rooms",
    "backgrounds": "Backgrounds, voices and drums",
    "scores": "Scores and performances",
    "recordings": "Real recordings",
    "recorded_scores": "Scores of these recordings",
}
"""Headings of the groups of sources, in card order."""
_SHARE_ALIKE = re.compile(r"\bSA\b|ShareAlike", re.IGNORECASE)


def sources(synth: SynthConfig) -> Sources:
    """Licences and attributions of everything that a training run could use.

    Groups that are not in the data folder are empty.
    """
    root = synth.root
    bank = _read(root / "bank_index.json")["instruments"]
    sets = _read(root / "releases" / "releases.json").get("sets", {})
    rooms = _read(root / "rooms.json").get("rooms", [])
    noises = _read(root / "noise.json").get("segments", [])
    pieces = [piece for index in indexes(root) for piece in index_entries(index)]
    scores = Counter((piece["source"], piece["licence"]) for piece in pieces)
    groups = {
        "sounds": _grouped(bank.items()),
        "releases": _grouped(sets.items()),
        "rooms": _grouped((room["name"].rpartition("_")[0], room) for room in rooms),
        "backgrounds": _grouped((Path(noise["file"]).stem, noise) for noise in noises),
        "scores": [
            {"attribution": where, "licence": licence, "pieces": count}
            for (where, licence), count in sorted(scores.items())
        ],
    }
    if synth.real_root is not None:
        entries = json.loads((synth.real_root / "index.json").read_text())
        left_out = synth.real_left_out
        real = {e["id"]: e for e in entries if e.get("score") and e["id"] not in left_out}
        written = {
            name: {"attribution": entry["score_attribution"], "licence": entry["score_licence"]}
            for name, entry in real.items()
        }
        groups["recordings"] = _grouped(real.items())
        groups["recorded_scores"] = _grouped(written.items())
    return groups


def _read(index: Path) -> dict[str, Any]:
    """An index; empty if missing, except that the index of the bank is required."""
    if index.name != "bank_index.json" and not index.exists():
        return {}
    content: dict[str, Any] = json.loads(index.read_text())
    return content


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


def attributions(found: Sources) -> list[str]:
    """The lines of a card: every source with its licence, then the share-alike ones."""
    lines = []
    for group, title in TITLES.items():
        if found.get(group):
            lines += [f"{title}:", "", *(f"- {_line(one)}" for one in found[group]), ""]
    alike = [one for group in TITLES for one in found.get(group, []) if shares_alike(one)]
    if alike:
        lines += ["Sources with share-alike licences:", ""]
        lines += [f"- {name}" for name in dict.fromkeys(_name(one) for one in alike)]
        lines.append("")
    return lines


def shares_alike(source: dict[str, Any]) -> bool:
    """Whether altered copies of a source must be shared under its own licence."""
    return bool(_SHARE_ALIKE.search(source["licence"]))


def _line(source: dict[str, Any]) -> str:
    if "pieces" in source:
        return f"{_name(source)}: {source['pieces']} pieces"
    return f"{_name(source)}: {', '.join(source['instruments'])}"


def _name(source: dict[str, Any]) -> str:
    return f"{source['attribution']} ({source['licence']})"
