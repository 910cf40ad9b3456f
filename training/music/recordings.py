"""Folders of recordings with note labels, in common data set layouts.

Audio and labels may be anywhere in the folder (``flac/``, ``tsv/``, ...) and are matched by the
stems of their file names. Labels have one of these forms:

- MIDI files. A sustain pedal acts on the notes of its own track.
- TSV or CSV tables of onset and offset in seconds, pitch, velocity and program.
- Alignments as in the Bach Violin Dataset. Each row of ``alignments/STEM.csv`` has the start and
  end, in seconds, of the note in the same row of ``notes/STEM.csv``. These times are relative to
  the start in ``info.csv``, next to the two folders. The folders may have sub-folders.
"""

import csv
import hashlib
import re
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import soundfile
import soxr
import symusic
from numpy.typing import NDArray

from model.config import SAMPLE_RATE
from model.instruments import UNKNOWN, class_of
from model.storage import replace_file
from training.arrays import F32, F64
from training.music.notes import (
    Notes,
    joined,
    next_onsets,
    notes_of,
    notes_of_rows,
    with_pedal,
)

HEADER = re.compile(r"#|onset|start", re.IGNORECASE)
SUSTAIN = 64  # number of the MIDI controller
COLUMNS = ("onset|start", "offset|end", "pitch|midi|note", "vel|^$")  # patterns of their names
EXPECTED = "expected onset, offset, pitch, velocity, program"


class LabelError(ValueError):
    """Labels cannot be read as notes, or a folder has no audio with labels."""


def read_table(path: Path) -> Notes:
    """Read a TSV or CSV file with columns onset and offset (seconds), pitch (MIDI number) and
    optionally velocity and program (General MIDI, 0 to 127). The first line may be a header or a
    comment. Raises LabelError for a line that is not a note, or an unreadable file."""
    notes = []
    for number, cells in enumerate(_read_rows(path), start=1):
        if not "".join(cells).strip():
            continue
        if number == 1 and HEADER.match(cells[0].strip()):
            _check_header(path, cells)
            continue
        try:
            onset, offset, pitch, *more = map(float, cells[:5])
            velocity = more[0] if more else 0.0
            program = more[1] if len(more) > 1 else UNKNOWN
            has_times = 0 <= onset <= offset < np.inf
            has_program = 0 <= program < 128 or program == UNKNOWN
            if not (has_times and 0 <= pitch <= 127 and 0 <= velocity <= 127 and has_program):
                raise ValueError
        except ValueError:
            raise LabelError(f"{path}:{number}: {EXPECTED}; got {cells}") from None
        notes.append((onset, offset, pitch, velocity, class_of(int(program))))
    return notes_of_rows(np.array(notes).reshape(-1, 5))


def _check_header(path: Path, cells: list[str]) -> None:
    """Raise LabelError if the names of the columns have another order. A line with # and fewer than
    three cells is a comment."""
    is_comment = cells[0].strip().startswith("#") and len(cells) < 3
    names = [name.strip().lower() for name in cells] + [""] * (3 - len(cells))
    fit = all(re.search(pattern, name) for pattern, name in zip(COLUMNS, names, strict=False))
    if not (is_comment or fit):
        raise LabelError(f"{path}:1: {EXPECTED}; got the header {cells}")


def _read_rows(path: Path) -> list[list[str]]:
    """Return the cells of all lines. Splits lines at tabs if the file has any, else at commas."""
    try:
        text = path.read_text(encoding="utf-8-sig")
        return list(csv.reader(text.splitlines(), delimiter="\t" if "\t" in text else ","))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise LabelError(f"cannot read {path}: {error}") from None


def midi_tracks(midi: bytes) -> list[tuple[int, Notes, F64]]:
    """Return for each track, except drums, its program, its notes and its presses of the sustain
    pedal, [n, 2] in seconds. Raises RuntimeError or ValueError for a corrupt file."""
    score: Any = symusic.Score.from_midi(midi, ttype="second")
    tracks = []
    for track in score.tracks:
        notes = track.notes.numpy()
        played = notes_of(*_span(notes), notes["pitch"], notes["velocity"])
        if not track.is_drum:
            tracks.append((track.program, played, _presses(track)))
    return tracks


def _presses(track: Any) -> F64:
    """Return the start and end of each press of the pedal, [presses, 2]. The last may last to the
    end of the track: symusic's ``pedals`` omit such a press."""
    controls = track.controls.numpy()
    is_pedal = controls["number"] == SUSTAIN
    is_down = np.concatenate([[False], controls["value"][is_pedal] >= 64, [False]])
    time = np.append(controls["time"][is_pedal], track.end()).astype(np.float64)
    change = np.diff(is_down.astype(int))
    return np.stack([time[change > 0], time[change < 0]], axis=1)


def _span(columns: dict[str, NDArray[Any]]) -> tuple[F64, F64]:
    """Return the start and end, in seconds, of each note or pedal press of a track."""
    begin = columns["time"].astype(np.float64)
    return begin, begin + columns["duration"]


def read_midi(path: Path) -> Notes:
    """Read the notes of a MIDI file, except drums. The pedal extends a note up to the next note of
    its pitch. Instruments are unknown if all programs are 0, the default. Raises LabelError."""
    try:
        tracks = midi_tracks(path.read_bytes())
    except (OSError, RuntimeError, ValueError) as error:
        raise LabelError(f"cannot read {path}: {error}") from error
    has_programs = any(program for program, _, _ in tracks)
    notes = joined(
        [
            with_pedal(notes.played_by(class_of(program) if has_programs else UNKNOWN), pedal)
            for program, notes, pedal in tracks
        ]
    )
    again_s = next_onsets(notes.pitch, notes.onset)
    return notes.ending(np.minimum(notes.offset, np.maximum(again_s, notes.released)))


def _read_alignment(alignment: Path, notes: Path, info: Path) -> Notes:
    """Read a score's notes. Add the start in ``info`` to the times of the alignment."""

    def read(path: Path) -> list[dict[str, str]]:
        head, *rows = _read_rows(path) or [[]]
        return [dict(zip(head, cells, strict=False)) for cells in rows if cells]

    aligned, written, starts = read(alignment), read(notes), read(info)
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
Pcm = NDArray[np.int16]


def to_pcm(samples: F32) -> Pcm:
    """Convert samples, -1..1, to 16 bits. Samples beyond full scale are clipped."""
    return np.rint(PCM_SCALE * np.clip(samples, -1, 1)).astype(np.int16)


def from_pcm(samples: Pcm) -> F32:
    """Convert samples of 16 bits to -1..1."""
    return samples.astype(np.float32) / np.float32(PCM_SCALE)


class AudioError(ValueError):
    """An audio file cannot be read."""


class Recording(NamedTuple):
    """One recording and its notes."""

    name: str
    audio: Path
    notes: Notes


@dataclass(frozen=True)
class Collection:
    """Recordings of one folder."""

    name: str
    recordings: list[Recording]  # recordings with readable labels, sorted by name
    failures: dict[str, str]  # error message of each recording that cannot be read, by name
    unlabelled: list[Path] = field(default_factory=list)  # audio without labels


def read_collection(folder: Path, suffixes: Set[str] = AUDIO) -> Collection:
    """Read all recordings below a folder, without hidden files such as macOS's ``._take.wav``.
    Recordings with unreadable labels, or with several audio files, become failures. Raises
    LabelError if the folder has no audio, or none with labels. suffixes: endings of audio files."""
    audio: dict[str, list[Path]] = {}
    labels: dict[str, list[Path]] = {}
    for path in sorted(folder.rglob("*")):
        if path.name.startswith(".") or not path.is_file():
            continue
        for kinds, by_stem in ((suffixes, audio), (MIDI | TABLES, labels)):
            if path.suffix.lower() in kinds:
                by_stem.setdefault(path.stem, []).append(path)
    if not audio:
        if not folder.is_dir():
            raise LabelError(f"no audio: {folder} is not a folder")
        raise LabelError(f"no audio ({', '.join(sorted(suffixes))}) below {folder}")
    if not labels.keys() & audio.keys():
        raise LabelError(f"no audio with labels of the same stem below {folder}")
    collection = Collection(str(folder), [], {})
    for stem, paths in sorted(audio.items()):
        if stem not in labels:
            collection.unlabelled.extend(paths)
            continue
        try:
            if len(paths) > 1:
                raise LabelError(f"{' and '.join(map(str, paths))} have the same stem")
            notes = _read_labels(labels[stem], folder)
            collection.recordings.append(Recording(stem, paths[0], notes))
        except LabelError as error:
            collection.failures[stem] = str(error)
    return collection


def _read_labels(paths: list[Path], folder: Path) -> Notes:
    """Read the notes of a recording from its label file, or from its alignment and score."""
    by_folder = {
        parent.name: (path, parent)
        for path in paths
        for parent in path.parents
        if parent.is_relative_to(folder) and parent.name in ("alignments", "notes")
    }
    if len(by_folder) == len(paths) == 2:
        (alignment, parent), (notes, _) = by_folder["alignments"], by_folder["notes"]
        return _read_alignment(alignment, notes, parent.with_name("info.csv"))
    if len(paths) > 1:
        raise LabelError(f"several label files: {', '.join(map(str, paths))}")
    return read_midi(paths[0]) if paths[0].suffix.lower() in MIDI else read_table(paths[0])


def read_audio(path: Path) -> tuple[F32, int]:
    """Return the samples of a file as mono, [n], and their rate in Hz. Raises AudioError."""
    try:
        samples, rate = soundfile.read(path, dtype="float32", always_2d=True)
    except (soundfile.SoundFileError, OSError) as error:
        raise AudioError(f"cannot read {path}: {error}") from None
    return samples.mean(axis=1), rate


def digest(*parts: bytes) -> str:
    """Return a key for a cache file that depends on these bytes."""
    return hashlib.sha256(b"".join(parts)).hexdigest()[:12]


def stored_arrays(path: Path, compute: Callable[[], Mapping[str, Any]]) -> dict[str, Any]:
    """Return the arrays of a cache file. If the file is missing, compute and write them first."""
    if not path.exists():
        replace_file(path, partial(np.savez, **compute()))
    with np.load(path) as stored:
        return dict(stored)


def stored_audio(path: Path, cache: Path) -> Pcm:
    """Return the samples of an audio file at SAMPLE_RATE, with channels averaged. They are
    memory-mapped from the cache, so that worker processes share them."""
    cached = cache / f"audio-{path.stem}-{digest(path.read_bytes())}.npy"
    if not cached.exists():
        audio = to_pcm(soxr.resample(*read_audio(path), SAMPLE_RATE))
        replace_file(cached, partial(np.save, arr=audio))
    return np.load(cached, mmap_mode="r")
