"""Folders of recordings with note labels, in the layouts that data sets come in.

Audio and labels are matched by stem, wherever in the folder they lie (``flac/``, ``tsv/``, ...).
Labels are MIDI files, or TSV/CSV tables of onset s, offset s, pitch, velocity, or alignments as of
the Bach Violin Dataset: ``alignments/STEM.csv`` with start and end in seconds, row for row with
``notes/STEM.csv``, counted from the start that ``info.csv`` gives.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pretty_midi

from training.metrics import NoteList, note_list

AUDIO = {".wav", ".flac", ".ogg", ".mp3", ".opus"}
MIDI = {".mid", ".midi"}
TABLES = {".tsv", ".csv"}
DEFAULT_VELOCITY = 64


class LabelError(ValueError):
    """A label file that cannot be read as notes."""


@dataclass(frozen=True)
class Recording:
    """One recording and its notes."""

    name: str
    audio: Path
    notes: NoteList


def recordings(folder: Path) -> Iterator[Recording]:
    """All labelled recordings below a folder, by name. Raises LabelError if there are none."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    audio = [path for path in files if path.suffix.lower() in AUDIO]
    found = False
    for path in audio:
        labels = [
            other
            for other in files
            if other.stem == path.stem and other.suffix.lower() in MIDI | TABLES
        ]
        if labels:
            found = True
            yield Recording(path.stem, path, read_labels(labels, folder))
    if not found:
        raise LabelError(f"no audio with labels of the same stem below {folder}")


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
    """TSV or CSV with columns onset, offset, pitch (MIDI number) and perhaps velocity."""
    delimiter = "\t" if path.suffix.lower() == ".tsv" else ","
    rows = []
    with path.open(newline="") as file:
        for number, cells in enumerate(csv.reader(file, delimiter=delimiter), start=1):
            try:
                values = [float(cell) for cell in cells[:4]]
            except ValueError:
                if number == 1:
                    continue  # a header
                raise LabelError(f"{path}:{number}: not numbers: {cells}") from None
            if len(values) == 3:
                values.append(DEFAULT_VELOCITY)
            if len(values) != 4 or values[1] < values[0] or not 0 <= values[2] < 128:
                raise LabelError(f"{path}:{number}: not onset, offset, pitch, velocity: {cells}")
            rows.append(values)
    return note_list(np.array(rows))


def read_alignment(alignment: Path, notes: Path, begin_s: float) -> NoteList:
    """Estimated times of a score's notes, row for row."""
    with alignment.open(newline="") as times, notes.open(newline="") as score:
        aligned, written = list(csv.DictReader(times)), list(csv.DictReader(score))
    if len(aligned) != len(written):
        raise LabelError(f"{alignment} and {notes} differ in length")
    rows = [
        (
            begin_s + float(time["start"]),
            begin_s + float(time["end"]),
            int(note["pitch"]),
            int(note["velocity"]),
        )
        for time, note in zip(aligned, written, strict=True)
    ]
    return note_list(np.array(rows))


def _start_seconds(info: Path, stem: str) -> float:
    with info.open(newline="") as file:
        for row in csv.DictReader(file):
            if row["filename"] == stem:
                hours, minutes, seconds = (int(part) for part in re.split(":", row["start"]))
                return 3600.0 * hours + 60 * minutes + seconds
    raise LabelError(f"{info} does not know {stem}")
