"""Folders of recordings with note labels, in common data set layouts.

Audio and labels are matched by stem, anywhere in the folder (``flac/``, ``tsv/``, ...).
Labels are MIDI files, or TSV/CSV tables of onset s, offset s, pitch, velocity, or alignments as of
the Bach Violin Dataset: ``alignments/STEM.csv`` with start and end in seconds, row for row with
``notes/STEM.csv``, relative to the start given by ``info.csv`` beside the two folders. Both may
have sub-folders.

A note of a MIDI file lasts from the key stroke until key and pedal are released. A sustain pedal
acts on the notes of its own track.
"""

import csv
import hashlib
import re
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
import soxr
import symusic
from numpy.typing import NDArray

from model.config import SAMPLE_RATE
from model.instruments import UNKNOWN, class_of
from model.storage import replace_file
from training.arrays import F32, F64
from training.music.metrics import UNKNOWN_VELOCITY
from training.music.notes import (
    Notes,
    joined,
    merged,
    next_strokes,
    notes_of,
    notes_of_rows,
    with_pedal,
)

COLUMNS = {
    "onset": ("onset", "start", "begin"),
    "offset": ("offset", "end", "stop"),
    "pitch": ("midi_pitch", "midi_note", "pitch", "note"),
    "velocity": ("velocity", "midi_velocity"),
    "program": ("program", "midi_program"),
}
"""How the names of columns begin, in any case; the last two columns may be missing."""


class LabelError(ValueError):
    """A label file that cannot be read as notes."""


def read_table(path: Path) -> Notes:
    """TSV or CSV with columns onset and offset (seconds), pitch (MIDI number) and optionally
    velocity and program (General MIDI, 0 to 127), in this order unless a header (COLUMNS) names
    another; a first line after # may be any comment.

    Raises LabelError: naming the line that is not a note, or a header that lacks a column.
    """
    rows = [row for row in enumerate(_read_rows(path), start=1) if any(map(str.strip, row[1]))]
    places = {name: place for place, name in enumerate(COLUMNS)}
    if rows and not re.match(r"\s*[-+.\d]", rows[0][1][0]):
        number, names = rows.pop(0)
        named: dict[str, int] = {}
        for place, name in enumerate(names):
            for column, beginnings in COLUMNS.items():
                if name.strip("# ").lower().startswith(beginnings):
                    named.setdefault(column, place)
        if {"onset", "offset", "pitch"} <= named.keys():
            places = named
        elif not names[0].lstrip().startswith("#"):
            raise LabelError(f"{path}:{number}: names no onset, offset and pitch: {names}")
    notes = []
    for number, cells in rows:
        values: dict[str, float] = {"velocity": UNKNOWN_VELOCITY, "program": UNKNOWN}
        try:
            values |= {name: float(cells[at]) for name, at in places.items() if at < len(cells)}
            if not _is_note(**values):
                raise ValueError
        except (TypeError, ValueError):
            words = "not onset, offset, pitch, velocity, program"
            raise LabelError(f"{path}:{number}: {words}: {cells}") from None
        values["program"] = class_of(int(values["program"]))
        notes.append([values[name] for name in COLUMNS])
    return notes_of_rows(np.array(notes).reshape(-1, len(COLUMNS)))


def _read_rows(path: Path) -> list[list[str]]:
    """Cells of all lines, split at tabs if there are any, or commas."""
    try:
        text = path.read_text(encoding="utf-8-sig")
        return list(csv.reader(text.splitlines(), delimiter="\t" if "\t" in text else ","))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise LabelError(f"cannot read {path}: {error}") from None


def _is_note(onset: float, offset: float, pitch: float, velocity: float, program: float) -> bool:
    known = 0 <= program < 128 or program == UNKNOWN
    return 0 <= onset <= offset < np.inf and 0 <= pitch < 128 and 0 <= velocity < 128 and known


def midi_tracks(midi: bytes) -> list[tuple[int, Notes, F64]]:
    """Program, notes and disjoint presses of the sustain pedal, [n, 2] in seconds, of each track
    but drums. Raises RuntimeError or ValueError for a damaged file."""
    score: Any = symusic.Score.from_midi(midi, ttype="second")
    tracks = []
    for track in score.tracks:
        notes = track.notes.numpy()
        played = notes_of(*_span(notes), notes["pitch"], notes["velocity"])
        if not track.is_drum:
            presses = np.stack(_span(track.pedals.numpy()), axis=1)
            tracks.append((track.program, played, merged(presses)))
    return tracks


def _span(columns: dict[str, NDArray[Any]]) -> tuple[F64, F64]:
    """Begin and end in seconds."""
    begin = columns["time"].astype(np.float64)
    return begin, begin + columns["duration"]


def read_midi(path: Path) -> Notes:
    """Notes of a MIDI file, without drums, lengthened by the sustain pedal; with instruments if the
    file names programs. Raises LabelError."""
    try:
        tracks = midi_tracks(path.read_bytes())
    except (OSError, RuntimeError, ValueError) as error:
        raise LabelError(f"cannot read {path}: {error}") from error
    named = any(program for program, _, _ in tracks)
    held = joined(
        [
            with_pedal(notes.played_by(class_of(program) if named else UNKNOWN), pedal)
            for program, notes, pedal in tracks
        ]
    )
    again = np.append(held.onset, np.inf)[next_strokes(held.pitch, held.onset)]
    return held.ending(np.minimum(held.offset, np.maximum(again, held.released)))


def read_alignment(alignment: Path, notes: Path, info: Path) -> Notes:
    """Estimated times of a score's notes, row for row, from the start that ``info`` gives. Raises
    LabelError."""
    aligned, written, starts = (
        [dict(zip(head, cells, strict=False)) for cells in rows if cells]
        for head, *rows in (_read_rows(path) or [[]] for path in (alignment, notes, info))
    )
    begin = {row.get("filename"): row.get("start", "") for row in starts}
    try:
        hours, minutes, seconds = map(int, begin[alignment.stem].split(":"))
        table = [
            (float(time["start"]), float(time["end"]), int(note["pitch"]), int(note["velocity"]))
            for time, note in zip(aligned, written, strict=True)
        ]
    except (KeyError, TypeError, ValueError) as error:
        raise LabelError(f"cannot read {alignment} with {notes} and {info}: {error!r}") from None
    begin_s = 3600 * hours + 60 * minutes + seconds
    return notes_of_rows(np.array(table).reshape(-1, 4) + [begin_s, begin_s, 0, 0])


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
    notes: Notes


@dataclass(frozen=True)
class Collection:
    """Recordings that belong together."""

    name: str
    recordings: list[Recording]  # those that can be scored, by name
    failures: dict[str, str]  # reasons why others cannot, by name
    unlabelled: list[Path] = field(default_factory=list)  # audio without labels


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
            recording = Recording(path.stem, path, read_labels(labels[path.stem], folder))
        except LabelError as error:
            collection.failures[path.stem] = str(error)
        else:
            collection.recordings.append(recording)
    return collection


def read_labels(candidates: list[Path], folder: Path) -> Notes:
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
        return read_alignment(alignment, notes, parent.with_name("info.csv"))
    if len(candidates) > 1:
        raise LabelError(f"several files of labels: {', '.join(map(str, candidates))}")
    (path,) = candidates
    return read_midi(path) if path.suffix.lower() in MIDI else read_table(path)


def read_audio(path: Path) -> tuple[F32, int]:
    """Mono samples [n] and their rate in Hz. Raises AudioError."""
    try:
        samples, rate = soundfile.read(path, dtype="float32", always_2d=True)
    except (soundfile.SoundFileError, OSError) as error:
        raise AudioError(f"cannot read {path}: {error}") from None
    return samples.mean(axis=1), rate


def stored_audio(path: Path, cache: Path) -> NDArray[np.int16]:
    """Samples at the model's rate, from the cache; one copy for all workers."""
    digest = hashlib.sha256(path.read_bytes()).hexdigest()[:12]
    place = cache / f"audio-{path.stem}-{digest}.npy"
    if not place.exists():
        samples = PCM_SCALE * soxr.resample(*read_audio(path), SAMPLE_RATE)
        audio = np.clip(np.rint(samples), -PCM_SCALE, PCM_SCALE).astype(np.int16)
        replace_file(place, partial(np.save, arr=audio))
    return np.load(place, mmap_mode="r")
