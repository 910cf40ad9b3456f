"""The score corpus as numpy arrays: notes of every piece, its parts and its sustain pedal.

The corpus folder holds bundles: zips of Standard MIDI Files, each with the index that describes
it. Each is read once, with symusic, whose C++ parser is many times faster than pretty_midi, and
kept in one ``.npz`` in the cache folder.
"""

import hashlib
import json
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import symusic
from numpy.typing import NDArray

from model.storage import replace_file
from training.music.notes import Notes, merged, notes_of

CACHE_VERSION = 4
BUNDLES = {
    "midi_index.json": "midi_open.zip",
    "midi_perf_index.json": "midi_perf.zip",
    "scores_hauptstimme_index.json": "scores_hauptstimme.zip",
}
"""Index and zip of each bundle; only the first is required."""
TRANSCRIBED = "GiantMIDI-Piano"
"""Source of pieces transcribed by another system: excluded from training."""


@dataclass(frozen=True)
class Piece:
    """One score or performance of the corpus."""

    identifier: str
    ensemble: str
    expressive: bool
    """Played by a person: timing, dynamics and pedal are real."""
    split: str
    collection: str
    """Where the piece comes from: the folder of its file, such as ``pop909``."""
    programs: tuple[int, ...]
    """General MIDI program of each part."""
    notes: Notes
    pedal: NDArray[np.float64]
    """Sustain pedal of the keyboard parts: [presses, 2] disjoint intervals in seconds, sorted."""

    @property
    def seconds(self) -> float:
        return float(self.notes.offset.max()) if len(self.notes) else 0.0


def load_pieces(folder: Path, cache: Path, split: str | None = None) -> list[Piece]:
    """All pieces of ``split`` ("train", "validation", "test"; None: all), by the indexes' order.

    Raises FileNotFoundError where the first index, or the zip of any, is missing.
    """
    pieces = []
    for entry, arrays in (one for index in indexes(folder) for one in _bundle(index, cache)):
        if split is None or entry["split"] == split:
            pieces.append(Piece(**{**entry, "programs": tuple(entry["programs"])}, **arrays))
    return pieces


def indexes(folder: Path) -> list[Path]:
    """The index files of the bundles in a corpus folder."""
    return [folder / name for i, name in enumerate(BUNDLES) if not i or (folder / name).exists()]


def index_entries(index: Path) -> list[dict[str, Any]]:
    """The pieces of an index that training may use."""
    pieces = json.loads(index.read_text())["pieces"]
    return [piece for piece in pieces if TRANSCRIBED not in piece["source"]]


def _bundle(index: Path, cache: Path) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Index entry and arrays of each piece of a bundle, parsed into ``cache`` on first use."""
    key = hashlib.sha256(index.read_bytes() + bytes([CACHE_VERSION])).hexdigest()[:12]
    path = cache / f"scores-{key}.npz"
    if not path.exists():
        parsed = _parse(index.parent / BUNDLES[index.name], index_entries(index))
        replace_file(path, lambda file: np.savez(file, **parsed))  # type: ignore[arg-type]
    with np.load(path) as stored:
        arrays = {name: stored[name] for name in stored.files}
    for i, entry in enumerate(json.loads(arrays["index"].tobytes())):
        span = slice(*arrays["note_bounds"][i : i + 2])
        notes = Notes(*(arrays[name][span] for name in Notes.__dataclass_fields__))
        pedal = arrays["pedal"][slice(*arrays["pedal_bounds"][i : i + 2])]
        yield entry, {"notes": notes, "pedal": pedal}


def _parse(path: Path, entries: list[dict[str, Any]]) -> dict[str, NDArray[Any]]:
    index: list[dict[str, Any]] = []
    all_notes: list[Notes] = []
    all_pedals: list[NDArray[np.float64]] = []
    with zipfile.ZipFile(path) as bundle:
        for entry in entries:
            score: Any = symusic.Score.from_midi(bundle.read(entry["file"]), ttype="second")
            tracks = [track for track in score.tracks if len(track.notes)]
            all_notes.append(_of_tracks([track.notes.numpy() for track in tracks]))
            pedals = [track.pedals.numpy() for track in score.tracks]
            start = np.concatenate([pedal["time"] for pedal in pedals]).astype(np.float64)
            length = np.concatenate([pedal["duration"] for pedal in pedals])
            all_pedals.append(merged(np.stack([start, start + length], axis=1)))
            index.append(
                {
                    "identifier": entry["id"],
                    "ensemble": entry["ensemble"],
                    "expressive": bool(entry["expressive"]),
                    "split": entry["split"],
                    "collection": PurePosixPath(entry["file"]).parent.name,
                    "programs": [int(track.program) for track in tracks],
                }
            )
    arrays: dict[str, NDArray[Any]] = {
        name: np.concatenate([getattr(notes, name) for notes in all_notes])
        for name in Notes.__dataclass_fields__
    }
    arrays["note_bounds"] = np.cumsum([0] + [len(notes) for notes in all_notes])
    arrays["pedal"] = np.concatenate(all_pedals)
    arrays["pedal_bounds"] = np.cumsum([0] + [len(pedal) for pedal in all_pedals])
    arrays["index"] = np.frombuffer(json.dumps(index).encode(), np.uint8)
    return arrays


def _of_tracks(tracks: list[dict[str, NDArray[Any]]]) -> Notes:
    if not tracks:
        return Notes.empty()
    onset = np.concatenate([t["time"] for t in tracks]).astype(np.float64)
    order = np.argsort(onset, kind="stable")
    duration = np.concatenate([t["duration"] for t in tracks]).astype(np.float64)
    part = np.repeat(np.arange(len(tracks)), [len(t["time"]) for t in tracks])
    pitch, velocity = (np.concatenate([t[name] for t in tracks]) for name in ("pitch", "velocity"))
    columns = (onset, onset + duration, pitch, velocity, part)
    return notes_of(*(column[order] for column in columns))
