"""Real recordings with labels of their notes, as training data.

Entries of the ``index.json`` of :mod:`training.music.real` with ``label_kind`` have
``labels``: tables of onset, offset, pitch and more (``training.music.recordings.read_table``).
Those of kind "exact" are trained as they are; of others, the loss masks the edges of notes.

Of phrases, clips listed in ``phrases.json`` with ``file``, ``class`` and ``upstream_split``, only
the instrument is known. The shipped weights ``live`` say where notes begin, and everything but who
plays them is masked.
"""

import hashlib
import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from model.config import HOP, INSTRUMENTS, PITCHES, SAMPLE_RATE
from model.storage import load, replace_file
from service.engine.local import LocalComputer
from service.notes.frames import peaks
from training.arrays import F64
from training.music.notes import FRAME_UNKNOWN, Notes, notes_of
from training.music.real import ALL_PITCHES, BOTH, MODEL, ScoredRecording, rows
from training.music.recordings import PCM_SCALE, read_table, stored_audio
from training.music.transcribe import transcribe_array

EXACT = "exact"
EDGE_S = 0.06
"""Approximate edges are masked for this long on either side: half as much again as their error."""
NEIGHBOURS = (-1, 0, 1)
"""Semitones around an approximate edge that are masked: a singer slides into a note."""
CLASSES = {"guitar": "plucked", "voice": "voice"}
"""Class of a soloist by a word of the entry's ``instruments``."""


def load_labelled(root: Path, cache: Path, split: str) -> dict[str, list[ScoredRecording]]:
    """The labelled recordings of a split, by the class of their soloist, in index order.

    Raises:
        ValueError: the index or a file is invalid.
        OSError: the index is missing.
    """
    found: dict[str, list[ScoredRecording]] = {}
    for name, entry in _entries(root, split):
        found.setdefault(name, []).append(_load(root, cache, entry, name))
    return found


def singing_files(root: Path, split: str) -> list[Path]:
    """Audio of the labelled voices of a split."""
    return [root / entry["audio"] for name, entry in _entries(root, split) if name == "voice"]


def _entries(root: Path, split: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """The labelled entries of the index with the class of their soloist, empty if it is another."""
    for entry in json.loads((root / "index.json").read_bytes()):
        if entry.get("label_kind") and entry.get("split", "train") == split:
            words = entry["instruments"].lower()
            yield next((name for word, name in CLASSES.items() if word in words), ""), entry


def load_singing(folder: Path, cache: Path) -> list[ScoredRecording]:
    """The singing of ``singing.json`` with labels of its sounds; none if it is missing."""
    index = folder / "singing.json"
    if not index.exists():
        return []
    found = []
    for one in json.loads(index.read_bytes())["files"]:
        if "HTS" in one["how"] or "phone-aligned" in one["how"]:
            name = Path(one["file"]).stem
            entry = {"id": name, "audio": one["file"], "labels": [one["labels"]]}
            found.append(_load(folder, cache, entry))
    return found


def _load(
    root: Path, cache: Path, entry: dict[str, Any], class_name: str = "voice"
) -> ScoredRecording:
    table = read_table(root / entry["labels"][0])
    notes = notes_of(table.onset, table.offset, table.pitch)
    number = INSTRUMENTS.index(class_name) if class_name else -1
    notes = notes.moved(instrument=np.full(len(notes), number, np.int8))
    exact = entry.get("label_kind") == EXACT
    doubts = np.zeros((0, 4)) if exact else edges(notes)
    audio = stored_audio(root / entry["audio"], cache)
    return ScoredRecording(entry["id"], audio, notes, doubts, approximate=not exact)


def edges(notes: Notes) -> F64:
    """What approximate labels leave open, as in ``Rendered.unknown``."""
    parts = []
    for step in NEIGHBOURS:
        pitch = np.clip(notes.pitch + step, 0, PITCHES - 1)
        parts.append(rows(notes.onset - EDGE_S, notes.onset + EDGE_S, pitch, BOTH))
        parts.append(rows(notes.offset - EDGE_S, notes.offset + EDGE_S, pitch, FRAME_UNKNOWN))
    return np.concatenate(parts)


HEARD = 0.4  # onset probability of a note
SOUNDS_S = 0.3  # length given to the notes, which no loss sees
KEPT_OUT = ("validation", "test")  # splits of the sources that are not trained on
CACHE_VERSION = 1


def load_phrases(root: Path, cache: Path) -> list[ScoredRecording]:
    """The clips to train on; none if the index is missing. Raises ValueError or OSError for files
    that cannot be read."""
    index = root / "phrases.json"
    if not index.exists():
        return []
    entries = [e for e in json.loads(index.read_bytes()) if e.get("upstream_split") not in KEPT_OUT]
    key = hashlib.sha256(index.read_bytes() + bytes([CACHE_VERSION])).hexdigest()[:12]
    place = cache / f"phrases-{key}.npz"
    audio = {entry["file"]: stored_audio(root / entry["file"], cache) for entry in entries}
    if not place.exists():
        with LocalComputer(load(MODEL)) as computer:
            found: dict[str, Any] = {
                name: _onsets(computer, sound) for name, sound in audio.items()
            }
        replace_file(place, partial(np.savez, **found))
    with np.load(place) as stored:
        onsets = {name: stored[name] for name in audio}
    clips = []
    for entry in entries:
        sound, (onset, pitch) = audio[entry["file"]], onsets[entry["file"]]
        notes = notes_of(onset, onset + SOUNDS_S, pitch)
        number = np.full(len(notes), INSTRUMENTS.index(entry["class"]), np.int8)
        length_s = np.array([len(sound) / SAMPLE_RATE])
        doubts = rows(np.zeros(1), length_s, ALL_PITCHES, BOTH)
        name = Path(entry["file"]).stem
        clips.append(ScoredRecording(name, sound, notes.moved(instrument=number), doubts))
    return clips


def _onsets(computer: LocalComputer, audio: NDArray[np.int16]) -> F64:
    """[2, n], seconds and pitches at which notes begin."""
    samples = audio.astype(np.float32) / np.float32(PCM_SCALE)
    heard = transcribe_array(samples, SAMPLE_RATE, computer).probabilities
    frame, pitch = peaks(heard[computer.config.heads.index("onset")], 1, HEARD).nonzero()
    return np.stack([frame * HOP / SAMPLE_RATE, pitch])
