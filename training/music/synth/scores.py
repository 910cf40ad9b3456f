"""The score corpus as numpy arrays: notes of every piece, its parts and its sustain pedal.

The corpus folder holds bundles: zips of Standard MIDI Files, each with the index that describes
it. symusic reads a thousand files a second; pretty_midi is many times slower.
"""

import json
import zipfile
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import symusic
from numpy.typing import NDArray

from training.music.notes import Notes, joined, merged, notes_of

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

    ensemble: str
    expressive: bool
    """Played by a person: timing, dynamics and pedal are real."""
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


def load_pieces(folder: Path, split: str) -> list[Piece]:
    """All pieces of ``split`` ("train", "validation", "test"), by the indexes' order.

    Raises FileNotFoundError where the first index, or the zip of any, is missing.
    """
    pieces = []
    for index in indexes(folder):
        with zipfile.ZipFile(folder / BUNDLES[index.name]) as bundle:
            for entry in index_entries(index):
                if entry["split"] == split:
                    pieces.append(_piece(entry, bundle.read(entry["file"])))
    return pieces


def indexes(folder: Path) -> list[Path]:
    """The index files of the bundles in a corpus folder."""
    return [folder / name for i, name in enumerate(BUNDLES) if not i or (folder / name).exists()]


def index_entries(index: Path) -> list[dict[str, Any]]:
    """The pieces of an index that training may use."""
    pieces = json.loads(index.read_text())["pieces"]
    return [piece for piece in pieces if TRANSCRIBED not in piece["source"]]


def _piece(entry: dict[str, Any], midi: bytes) -> Piece:
    score: Any = symusic.Score.from_midi(midi, ttype="second")
    tracks = [track for track in score.tracks if len(track.notes)]
    parts, presses = [], [np.zeros((0, 2))]
    for part, track in enumerate(tracks):
        columns = track.notes.numpy()
        begin, end = _span(columns)
        parts.append(notes_of(begin, end, columns["pitch"], columns["velocity"], part))
    presses += [np.stack(_span(track.pedals.numpy()), axis=1) for track in score.tracks]
    return Piece(
        entry["ensemble"],
        bool(entry["expressive"]),
        PurePosixPath(entry["file"]).parent.name,
        tuple(int(track.program) for track in tracks),
        joined(parts),
        merged(np.concatenate(presses)),
    )


def _span(columns: dict[str, NDArray[Any]]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Begin and end in seconds."""
    begin = columns["time"].astype(np.float64)
    return begin, begin + columns["duration"]
