"""What weights learned from: every source with its licence, as the model card must carry it."""

from __future__ import annotations

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
"""Headings of the groups of sources, in the order of the card."""
_SHARE_ALIKE = re.compile(r"\bSA\b|ShareAlike", re.IGNORECASE)


def sources(synth: SynthConfig) -> Sources:
    """Licences and attributions of all that a training run could draw from.

    Parts that the folder of material does not hold are empty.
    """
    root = synth.root
    bank = _read(root / "bank_index.json")["instruments"]
    sets = _read(root / "releases" / "releases.json").get("sets", {})
    rooms = _read(root / "rooms.json").get("rooms", [])
    noises = _read(root / "noise.json").get("segments", [])
    pieces = [piece for index in indexes(root) for piece in index_entries(index)]
    scores = Counter((piece["source"], piece["licence"]) for piece in pieces)
    return {
        "sounds": _grouped(bank.items()),
        "releases": _grouped(sets.items()),
        "rooms": _grouped((room["name"].rpartition("_")[0], room) for room in rooms),
        "backgrounds": _grouped((Path(noise["file"]).stem, noise) for noise in noises),
        "scores": [
            {"attribution": where, "licence": licence, "pieces": count}
            for (where, licence), count in sorted(scores.items())
        ],
        **_real(synth),
    }


def _real(synth: SynthConfig) -> Sources:
    if synth.real_root is None:
        return {}
    recordings = [
        entry
        for entry in json.loads((synth.real_root / "index.json").read_text())
        if entry.get("score") and entry["id"] not in synth.real_left_out
    ]
    scores = (
        {"attribution": entry["score_attribution"], "licence": entry["score_licence"]}
        for entry in recordings
    )
    names = [entry["id"] for entry in recordings]
    return {
        "recordings": _grouped(zip(names, recordings, strict=True)),
        "recorded_scores": _grouped(zip(names, scores, strict=True)),
    }


def _read(index: Path) -> dict[str, Any]:
    """An index; nothing where it is missing, but for that of the bank."""
    if index.name != "bank_index.json" and not index.exists():
        return {}
    content: dict[str, Any] = json.loads(index.read_text())
    return content


def _grouped(entries: Iterable[tuple[str, dict[str, Any]]]) -> list[dict[str, Any]]:
    """Names by attribution and licence, in the order of their first."""
    groups: dict[tuple[str, str], dict[str, None]] = {}
    for name, entry in entries:
        licence = re.sub(r", see [^)]*", "", entry["licence"])  # a remark on other documents
        groups.setdefault((entry["attribution"], licence), {})[name] = None
    return [
        {"attribution": who, "licence": licence, "instruments": list(names)}
        for (who, licence), names in groups.items()
    ]


def attributions(found: Sources) -> list[str]:
    """The lines of a card: each source with its licence, and the share-alike ones by name."""
    lines = []
    for group, title in TITLES.items():
        if found.get(group):
            lines += [f"{title}:", "", *(f"- {_line(one)}" for one in found[group]), ""]
    alike = [one for group in TITLES for one in found.get(group, []) if shares_alike(one)]
    if alike:
        lines += ["Share-alike licences among these:", ""]
        lines += [f"- {name}" for name in dict.fromkeys(_name(one) for one in alike)]
        lines.append("")
    return lines


def shares_alike(source: dict[str, Any]) -> bool:
    """Whether altered copies of a source must be spread under its own licence."""
    return bool(_SHARE_ALIKE.search(source["licence"]))


def _line(source: dict[str, Any]) -> str:
    if "pieces" in source:
        return f"{_name(source)}: {source['pieces']} pieces"
    return f"{_name(source)}: {', '.join(source['instruments'])}"


def _name(source: dict[str, Any]) -> str:
    # Cards of earlier weights name the origin of scores "source".
    return f"{source.get('attribution') or source['source']} ({source['licence']})"
