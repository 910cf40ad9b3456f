"""Folders of recordings with note labels, in common data set layouts.

Audio and labels are matched by stem, anywhere in the folder (``flac/``, ``tsv/``, ...).
Labels are MIDI files, or TSV/CSV tables of onset s, offset s, pitch, velocity, or alignments as of
the Bach Violin Dataset: ``alignments/STEM.csv`` with start and end in seconds, row for row with
``notes/STEM.csv``, relative to the start given by ``info.csv`` beside the two folders. Both may
have sub-folders.
"""

from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import numpy as np
import soundfile
from numpy.typing import NDArray

from training.music.label_files import (
    LabelError,
    read_alignment,
    read_columns,
    read_midi,
    read_table,
)
from training.music.metrics import NoteList

AUDIO = {".wav", ".flac", ".ogg", ".oga", ".mp3", ".opus", ".aif", ".aiff"}
MIDI = {".mid", ".midi"}
TABLES = {".tsv", ".csv"}
PCM_SCALE = 32_767  # full scale of stored samples


class AudioError(ValueError):
    """Audio that cannot be read."""


@dataclass(frozen=True)
class Recording:
    """One recording and its notes."""

    name: str
    audio: Path
    notes: NoteList


@dataclass(frozen=True)
class Collection:
    """Recordings that belong together."""

    name: str
    recordings: list[Recording]
    """Those that can be scored, by name."""
    failures: dict[str, str]
    """Reasons why others cannot, by name."""
    unlabelled: list[Path] = field(default_factory=list)
    """Audio without labels."""


def read_collection(folder: Path) -> Collection:
    """All recordings below a folder; those whose labels cannot be read are failures.

    Raises:
        LabelError: there is no audio, none with labels, or two recordings of the same stem.
    """
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    audio = [path for path in files if path.suffix.lower() in AUDIO]
    audio.sort(key=lambda path: path.stem)
    labels: dict[str, list[Path]] = {}
    for path in files:
        if path.suffix.lower() in MIDI | TABLES:
            labels.setdefault(path.stem, []).append(path)
    if not audio:
        what = f"below {folder}" if folder.is_dir() else f", {folder} is not a folder"
        raise LabelError(f"no audio ({', '.join(sorted(AUDIO))}) {what}")
    if not labels.keys() & {path.stem for path in audio}:
        raise LabelError(f"no audio with labels of the same stem below {folder}")
    for path, following in pairwise(audio):
        if path.stem == following.stem and path.stem in labels:
            raise LabelError(f"{path} and {following} have the same stem")
    collection = Collection(str(folder), [], {})
    for path in audio:
        if path.stem not in labels:
            collection.unlabelled.append(path)
            continue
        try:
            notes = read_labels(labels[path.stem], folder)
        except LabelError as error:
            collection.failures[path.stem] = str(error)
        else:
            collection.recordings.append(Recording(path.stem, path, notes))
    return collection


def read_labels(candidates: list[Path], folder: Path) -> NoteList:
    """Notes from the label files of one recording below a folder: one, or an alignment and its
    notes. Raises LabelError."""
    places = {
        parent.name: (path, parent)
        for path in candidates
        for parent in path.parents
        if parent.is_relative_to(folder) and parent.name in ("alignments", "notes")
    }
    if len(places) == len(candidates) == 2:
        (alignment, parent), (notes, _) = places["alignments"], places["notes"]
        begin = _start_seconds(parent.with_name("info.csv"), alignment.stem)
        return read_alignment(alignment, notes, begin)
    if len(candidates) > 1:
        raise LabelError(f"several files of labels: {', '.join(map(str, candidates))}")
    (path,) = candidates
    return read_midi(path) if path.suffix.lower() in MIDI else read_table(path)


def _start_seconds(info: Path, stem: str) -> float:
    for row in read_columns(info):
        if row.get("filename") == stem:
            try:
                hours, minutes, seconds = (int(part) for part in row["start"].split(":"))
            except (KeyError, ValueError):
                raise LabelError(f"{info}: {stem} has no start as hours:minutes:seconds") from None
            return 3600.0 * hours + 60 * minutes + seconds
    raise LabelError(f"{info} does not list {stem}")


def read_audio(path: Path) -> tuple[NDArray[np.float32], int]:
    """Mono samples [n] and their rate in Hz. Raises AudioError."""
    try:
        samples, rate = soundfile.read(path, dtype="float32", always_2d=True)
    except (soundfile.SoundFileError, OSError) as error:
        raise AudioError(f"cannot read {path}: {error}") from None
    return samples.mean(axis=1), rate
