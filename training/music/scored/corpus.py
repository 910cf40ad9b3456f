"""Real recordings with scores as training data.

A folder holds ``index.json``: a list of entries with ``id``, ``audio`` and optionally ``score`` (a
MIDI file; without one the recording is skipped), ``coarse`` (a first alignment), ``split`` ("train"
or "validation"), ``instruments`` ("solo piano ..."), ``ornaments`` (whether the player adds notes).
``ornaments/ID.tsv`` lists the score times of ornament signs that the score does not play out. Each
recording is aligned once, with the shipped weights, and kept in the cache folder.
"""

import hashlib
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from model.config import INSTRUMENTS
from training.music.notes import Notes, notes_of
from training.music.scored.masks import Evidence, unknown
from training.music.scored.time_map import TimeMap

CACHE_VERSION = 2


@dataclass(frozen=True)
class ScoredRecording:
    """A recording with labels from its score."""

    name: str
    audio: NDArray[np.int16]
    """[samples] at the model's rate, PCM_SCALE at full scale"""
    notes: Notes
    """Velocity 0 means unknown."""
    unknown: NDArray[np.float64]
    """As in ``Rendered``."""


def load_recordings(
    root: Path, cache: Path, split: str, left_out: tuple[str, ...] = ()
) -> list[ScoredRecording]:
    """The recordings of a split that have a score, in index order.

    Args:
        left_out: recordings, ID, or parts of them, ID:SECOND-SECOND, that are not used.

    Raises:
        ValueError: the index, a file or a left-out part is invalid.
        OSError: the index is missing.
    """
    spans = _spans(left_out)
    entries = [
        entry
        for entry in json.loads((root / "index.json").read_bytes())
        if entry.get("score") and entry.get("split", "train") == split
        if spans.get(entry["id"], [()]) != []
    ]
    places = {entry["id"]: cache / _key(root, entry) for entry in entries}
    missing = [entry for entry in entries if not (places[entry["id"]] / "labels.npz").exists()]
    if missing:
        # Imported here: only needed while the cache is incomplete.
        from training.music.scored.prepare import prepare

        prepare(root, [(entry, places[entry["id"]]) for entry in missing])
    return [
        _load(root, entry, places[entry["id"]], spans.get(entry["id"], [])) for entry in entries
    ]


def _spans(left_out: tuple[str, ...]) -> dict[str, list[tuple[float, float]]]:
    """The parts of each recording to leave out; an empty list means all of it."""
    spans: dict[str, list[tuple[float, float]]] = {}
    for text in left_out:
        name, _, span = text.partition(":")
        parts = spans.setdefault(name, [])
        if span:
            try:
                begin_s, end_s = (float(second) for second in span.split("-"))
            except ValueError:
                raise ValueError(f"expected ID or ID:SECOND-SECOND, not {text!r}") from None
            parts.append((begin_s, end_s))
    return spans


def _key(root: Path, entry: dict[str, Any]) -> str:
    """The cache folder of a recording."""
    files = [root / entry[kind] for kind in ("audio", "score", "coarse") if entry.get(kind)]
    digest = hashlib.sha256(str(CACHE_VERSION).encode())
    for file in files:
        digest.update(file.read_bytes())
    return f"scored-{entry['id']}-{digest.hexdigest()[:12]}"


def _load(
    root: Path, entry: dict[str, Any], place: Path, left_out: list[tuple[float, float]]
) -> ScoredRecording:
    with np.load(place / "labels.npz") as stored:
        arrays = {name: stored[name] for name in stored.files}
    notes = notes_of(arrays["onset"], arrays["offset"], arrays["pitch"])
    notes = replace(notes, instrument=np.full(len(notes), _instrument(entry), np.int8))
    evidence = Evidence(
        notes,
        arrays["confidence"],
        arrays["heard"],
        TimeMap(arrays["score_s"], arrays["audio_s"]),
        arrays["unwritten"],
        float(arrays["ringing"]),
    )
    signs = root / "ornaments" / f"{entry['id']}.tsv"
    signs_s = _signs(signs) if signs.exists() else np.zeros(0)
    ornamented = bool(entry.get("ornaments", len(signs_s) > 0))
    spans_s = np.array(left_out, np.float64).reshape(-1, 2)
    audio = np.load(place / "audio.npy", mmap_mode="r")  # one copy for all workers
    return ScoredRecording(
        entry["id"], audio, notes, unknown(evidence, signs_s, ornamented, spans_s)
    )


def _instrument(entry: dict[str, Any]) -> int:
    """Class number of a soloist; -1 for several players or other instruments."""
    words = str(entry.get("instruments", "")).lower().removeprefix("solo ")
    solo = str(entry.get("instruments", "")).lower().startswith("solo ")
    named = [number for number, name in enumerate(INSTRUMENTS) if words.startswith(name)]
    return named[0] if solo and named else -1


def _signs(path: Path) -> NDArray[np.float64]:
    """Score times in the first column, below a header line."""
    lines = path.read_text(encoding="utf-8").splitlines()[1:]
    try:
        return np.array([float(line.split("\t")[0]) for line in lines if line.strip()])
    except ValueError:
        raise ValueError(f"{path}: expected a score time in the first column") from None
