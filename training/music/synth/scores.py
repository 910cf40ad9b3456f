"""Loads scores from bundles of MIDI files, each with an index, and draws random notes."""

import json
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from training.arrays import F64, Rng
from training.music.notes import Notes, joined, merged, notes_of
from training.music.recordings import midi_tracks

BUNDLES = {
    "midi_index.json": "midi_open.zip",
    "midi_perf_index.json": "midi_perf.zip",
    "scores_hauptstimme_index.json": "scores_hauptstimme.zip",
}
"""ZIP file of each bundle, by its index. Only the first bundle is required."""
TRANSCRIBED = "GiantMIDI-Piano"  # unused source, because another system transcribed its notes
PITCH_LOW, PITCH_HIGH = 21, 108  # MIDI range of the piano; performances omit other notes


@dataclass(frozen=True)
class Piece:
    """One score or performance of the corpus."""

    ensemble: str
    expressive: bool  # true for performances, whose timing, dynamics and pedal are real
    collection: str  # folder of the file, such as ``pop909``
    programs: tuple[int, ...]  # General MIDI program of each part
    notes: Notes
    pedal: F64  # presses of the sustain pedal, [presses, 2]: sorted, disjoint intervals in seconds

    @property
    def seconds(self) -> float:
        return float(self.notes.offset.max(initial=0.0))

    @property
    def group(self) -> str:
        """The group of ensembles to which the piece belongs."""
        if self.ensemble == "solo piano":
            return "pop piano" if self.collection == "pop909" else "solo piano"
        if self.ensemble.startswith("orchestra"):
            return "orchestra"
        if "voice" in self.ensemble:
            return "songs"
        if self.ensemble == "string quartet":
            return "quartets"
        if self.ensemble in ("solo violin", "solo viola", "solo cello"):
            return "solo strings"
        return "solo winds" if self.ensemble.startswith("solo") else "chamber"


def load_pieces(folder: Path, split: str) -> list[Piece]:
    """Load the pieces of ``split`` ("train", "validation" or "test") that have notes, in index
    order. Raises FileNotFoundError if the first index or an index's ZIP file is missing, and
    ValueError for a ZIP file that is corrupt or lacks a piece, and for a corrupt piece."""
    pieces = []
    for index in indexes(folder):
        path, entries = folder / BUNDLES[index.name], index_entries(index)
        try:
            with zipfile.ZipFile(path) as bundle:
                for entry in entries:
                    if entry["split"] == split:
                        pieces.append(_piece(entry, bundle.read(entry["file"])))
        except (KeyError, RuntimeError, ValueError, zipfile.BadZipFile, zlib.error) as error:
            raise ValueError(f"cannot read {path} as {index.name} describes it: {error}") from error
    return [piece for piece in pieces if len(piece.notes)]


def indexes(folder: Path) -> list[Path]:
    """Return the index file of each bundle in a folder, including the required first one."""
    return [folder / name for i, name in enumerate(BUNDLES) if not i or (folder / name).exists()]


def index_entries(index: Path) -> list[dict[str, Any]]:
    """Return the pieces of an index that training may use."""
    pieces = json.loads(index.read_text())["pieces"]
    return [piece for piece in pieces if TRANSCRIBED not in piece["source"]]


def _piece(entry: dict[str, Any], midi: bytes) -> Piece:
    tracks = midi_tracks(midi)
    sounding = [(program, notes) for program, notes, _ in tracks if len(notes)]
    parts = [
        notes.replaced(part=np.full(len(notes), part, np.int16))
        for part, (_, notes) in enumerate(sounding)
    ]
    presses = [np.zeros((0, 2)), *(pedal for _, _, pedal in tracks)]
    return Piece(
        entry["ensemble"],
        bool(entry["expressive"]),
        PurePosixPath(entry["file"]).parent.name,
        tuple(program for program, _ in sounding),
        joined(parts),
        merged(np.concatenate(presses)),
    )


STEPS = ([0, 2, 4, 5, 7, 9, 11], range(12), [0, 4, 7], [0, 3, 7], [0, 3, 6, 9], [0, 4, 8], [0, 7])
"""Scales and chords of random lines, in semitones above their lowest note."""

Section = tuple[F64, F64, F64]  # onsets in seconds, durations in seconds, and pitches


def random_notes(seconds: float, low: int, high: int, rng: Rng) -> Notes:
    """Return random patterns, one after another, in part 0 with pitches within ``low``..``high``.
    All pitches and intervals occur, whereas scores follow harmony and rarely leave the middle of
    the keyboard."""
    low, high = max(PITCH_LOW, low), min(PITCH_HIGH, high)
    columns: list[tuple[F64, F64, F64, F64]] = []
    time = float(rng.uniform(0, min(1, seconds)))
    while time < seconds:
        span = float(rng.uniform(2, 6))
        centre = float(rng.uniform(low, high))
        if rng.random() < 0.5:  # near the lowest or highest note
            edge = rng.uniform(0, 16)
            centre = float(low + edge if rng.random() < 0.5 else high - edge)
        pattern = (_line, _clusters, _single)[rng.integers(3)]
        onset, duration, pitch = pattern(span, centre, rng)
        velocity = np.clip(rng.uniform(25, 110) + rng.normal(0, 8, len(onset)), 12, 122)
        columns.append((time + onset, time + onset + duration, np.rint(pitch), velocity))
        time += span + float(rng.exponential(0.3))
    onset, offset, pitch, velocity = map(np.concatenate, zip(*columns, strict=True))
    inside = (pitch >= low) & (pitch <= high) & (onset < seconds)
    order = np.flatnonzero(inside)[np.argsort(onset[inside], kind="stable")]
    return notes_of(onset[order], offset[order], pitch[order], velocity[order])


def _pulse(span: float, rng: Rng, min_period_s: float, max_period_s: float) -> tuple[F64, F64]:
    """Return onsets and durations of a nearly regular pulse for ``span`` seconds. Its period is
    between ``min_period_s`` and ``max_period_s``."""
    period_s = float(np.exp(rng.uniform(np.log(min_period_s), np.log(max_period_s))))
    onset = np.arange(0, span, period_s)
    onset = onset + rng.normal(0, 0.02 * period_s, len(onset)).clip(-0.02, 0.02)
    return np.maximum(onset, 0), np.full(len(onset), period_s * rng.uniform(0.4, 1.6))


def _line(span: float, centre: float, rng: Rng) -> Section:
    """Return a line up and down a scale or chord, or one repeated note."""
    onset, duration = _pulse(span, rng, 0.07, 0.5)
    if rng.random() < 0.3:
        return onset, duration, np.full(len(onset), centre)
    steps = np.array(STEPS[rng.integers(len(STEPS))])
    turn = int(rng.integers(4, 16))
    degree = np.abs(np.arange(len(onset)) % (2 * turn) - turn) - turn // 2
    return onset, duration, centre + 12 * (degree // len(steps)) + steps[degree % len(steps)]


def _clusters(span: float, centre: float, rng: Rng) -> Section:
    """Return clusters of two to ten notes, with pitches drawn uniformly around ``centre``."""
    onset, duration = _pulse(span, rng, 0.15, 1.5)
    sizes = rng.integers(2, 11, len(onset))
    width = np.repeat(rng.integers(3, 30, len(onset)), sizes)
    pitch = np.rint(centre + rng.uniform(-width, width))
    times = np.repeat(onset, sizes) + np.abs(rng.normal(0, rng.choice([0.002, 0.01]), len(pitch)))
    return times, np.repeat(duration, sizes), pitch


def _single(span: float, centre: float, rng: Rng) -> Section:
    """Return single notes, usually separated by rests."""
    onset, duration = _pulse(span, rng, 0.3, 2.0)
    return onset, duration * rng.uniform(0.4, 1.0), centre + rng.normal(0, 8, len(onset))
