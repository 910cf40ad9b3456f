"""Folders of recordings with note labels, in the layouts that data sets come in.

Audio and labels are matched by stem, wherever in the folder they lie (``flac/``, ``tsv/``, ...).
Labels are MIDI files, or TSV/CSV tables of onset s, offset s, pitch, velocity, or alignments as of
the Bach Violin Dataset: ``alignments/STEM.csv`` with start and end in seconds, row for row with
``notes/STEM.csv``, counted from the start that ``info.csv`` gives.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import pretty_midi

from training.metrics import NoteList, note_list

AUDIO = {".wav", ".flac", ".ogg", ".mp3", ".opus"}
MIDI = {".mid", ".midi"}
TABLES = {".tsv", ".csv"}
DEFAULT_VELOCITY = 64
COLUMNS = {
    "onset": ("onset", "onset_s", "onset_time", "start", "start_s", "start_time"),
    "offset": ("offset", "offset_s", "offset_time", "end", "end_s", "end_time"),
    "pitch": ("pitch", "note", "midi"),
    "velocity": ("velocity",),
}
"""Names of a table's columns; the last one may be missing."""
MUSICNET_RATE_HZ = 44_100.0


class LabelError(ValueError):
    """A label file that cannot be read as notes."""


@dataclass(frozen=True)
class Recording:
    """One recording and its notes."""

    name: str
    audio: Path
    notes: NoteList


def recordings(folder: Path) -> Iterator[Recording]:
    """All labelled recordings below a folder, by name.

    Raises:
        LabelError: there are none, two of the same stem, or labels that cannot be read.
    """
    audio, labels = _files(folder)
    if not audio:
        what = f"below {folder}" if folder.is_dir() else f", {folder} is no folder"
        raise LabelError(f"no audio ({', '.join(sorted(AUDIO))}) {what}")
    if not labels.keys() & {path.stem for path in audio}:
        raise LabelError(f"no audio with labels of the same stem below {folder}")
    for path, following in pairwise(audio):
        if path.stem == following.stem and path.stem in labels:
            raise LabelError(f"{path} and {following} have the same stem")
    for path in audio:
        if path.stem in labels:
            yield Recording(path.stem, path, read_labels(labels[path.stem], folder))


def unlabelled(folder: Path) -> list[Path]:
    """Audio below a folder for which there are no labels, by stem."""
    audio, labels = _files(folder)
    return [path for path in audio if path.stem not in labels]


def _files(folder: Path) -> tuple[list[Path], dict[str, list[Path]]]:
    """Audio files by stem, and the label files of each stem."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    labels: dict[str, list[Path]] = {}
    for path in files:
        if path.suffix.lower() in MIDI | TABLES:
            labels.setdefault(path.stem, []).append(path)
    audio = [path for path in files if path.suffix.lower() in AUDIO]
    return sorted(audio, key=lambda path: path.stem), labels


def read_labels(candidates: list[Path], folder: Path) -> NoteList:
    """Notes from the label files of one recording."""
    for path in candidates:
        if path.suffix.lower() in MIDI:
            return read_midi(path)
    by_place = {path.parent.name: path for path in candidates}
    if {"alignments", "notes"} <= set(by_place):
        begin = _start_seconds(folder / "info.csv", candidates[0].stem)
        return read_alignment(by_place["alignments"], by_place["notes"], begin)
    return read_table(candidates[0])


def read_midi(path: Path) -> NoteList:
    """Notes of a MIDI file; held pedals lengthen them."""
    try:
        midi = pretty_midi.PrettyMIDI(str(path))
    except (OSError, ValueError, EOFError, KeyError, IndexError) as error:
        raise LabelError(f"cannot read {path}: {error}") from error
    rows = [
        (note.start, pedalled, note.pitch, note.velocity)
        for instrument in midi.instruments
        if not instrument.is_drum
        for note, pedalled in _with_pedal(instrument)
    ]
    return note_list(np.array(rows))


def _with_pedal(
    instrument: pretty_midi.Instrument,
) -> Iterator[tuple[pretty_midi.Note, float]]:
    """Notes with the time to which the sustain pedal holds them, at most to the next strike."""
    changes = [(c.time, c.value >= 64) for c in instrument.control_changes if c.number == 64]
    strikes: dict[int, list[float]] = {}
    for note in instrument.notes:
        strikes.setdefault(note.pitch, []).append(note.start)
    last = instrument.get_end_time()
    for note in instrument.notes:
        end = note.end
        before = [down for time, down in changes if time <= end]
        if before and before[-1]:
            end = next((time for time, down in changes if time > end and not down), last)
        following = [time for time in strikes[note.pitch] if time > note.start]
        yield note, max(note.end, min([end, *following])) if following else end


def read_table(path: Path) -> NoteList:
    """TSV or CSV with the columns onset, offset, pitch (MIDI number) and perhaps velocity.

    In this order, unless a header names them otherwise (COLUMNS). Seconds, but for the tables of
    MusicNet, which count samples and are known by their columns.

    Raises:
        LabelError: with the line that is at fault.
    """
    delimiter = "\t" if path.suffix.lower() == ".tsv" else ","
    places, per_second = list(range(4)), 1.0
    rows = []
    for number, cells in enumerate(_read_rows(path, delimiter), start=1):
        names = [cell.strip(" #").lower() for cell in cells]
        if number == 1 and not _is_number(names[0] if names else ""):
            places = _places(names) or places
            if {"start_time", "instrument"} <= set(names):
                per_second = MUSICNET_RATE_HZ
            continue
        if not any(names):
            continue
        try:
            values = [float(cells[place]) for place in places if place < len(cells)]
        except ValueError:
            raise LabelError(f"{path}:{number}: not numbers: {cells}") from None
        if len(values) == 3:
            values.append(DEFAULT_VELOCITY)
        if len(values) != 4 or not _is_note(*values):
            raise LabelError(f"{path}:{number}: not onset, offset, pitch, velocity: {cells}")
        rows.append([values[0] / per_second, values[1] / per_second, *values[2:]])
    return note_list(np.array(rows))


def _read_rows(path: Path, delimiter: str) -> list[list[str]]:
    try:
        with path.open(newline="") as file:
            return list(csv.reader(file, delimiter=delimiter))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise LabelError(f"cannot read {path}: {error}") from None


def _places(names: list[str]) -> list[int] | None:
    """Where the columns of COLUMNS are; None where a header does not name them."""
    found = [
        next((names.index(name) for name in known if name in names), None)
        for known in COLUMNS.values()
    ]
    if None in found[:3]:
        return None
    return [place for place in found if place is not None]


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _is_note(onset: float, offset: float, pitch: float, velocity: float) -> bool:
    return 0 <= onset <= offset < np.inf and 0 <= pitch < 128 and 0 <= velocity < 128


def read_alignment(alignment: Path, notes: Path, begin_s: float) -> NoteList:
    """Estimated times of a score's notes, row for row."""
    aligned, written = _read_columns(alignment), _read_columns(notes)
    if len(aligned) != len(written):
        raise LabelError(f"{alignment} and {notes} differ in length")
    try:
        rows = [
            (
                begin_s + float(time["start"]),
                begin_s + float(time["end"]),
                int(note["pitch"]),
                int(note["velocity"]),
            )
            for time, note in zip(aligned, written, strict=True)
        ]
    except (KeyError, TypeError, ValueError) as error:
        raise LabelError(f"cannot read {alignment} with {notes}: {error!r}") from None
    return note_list(np.array(rows))


def _read_columns(path: Path) -> list[dict[str, str]]:
    head, *rows = _read_rows(path, ",") or [[]]
    return [dict(zip(head, cells, strict=False)) for cells in rows if cells]


def _start_seconds(info: Path, stem: str) -> float:
    for row in _read_columns(info):
        if row.get("filename") == stem:
            try:
                hours, minutes, seconds = (int(part) for part in row["start"].split(":"))
            except (KeyError, ValueError):
                raise LabelError(f"{info}: {stem} has no start as hours:minutes:seconds") from None
            return 3600.0 * hours + 60 * minutes + seconds
    raise LabelError(f"{info} does not know {stem}")
