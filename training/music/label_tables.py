"""Note tables written by programs and data sets: TSV, CSV, alignments."""

import csv
import re
from pathlib import Path

import numpy as np

from model.instruments import UNKNOWN, class_of
from training.music.metrics import UNKNOWN_VELOCITY, NoteList, note_list

DELIMITERS = ("\t", ",", ";")
SPLIT = re.compile("[\t,;]")  # a header may use another delimiter than the rows
AFTER_NAME = re.compile("(time)?(s|sec|secs|seconds?)?$")
COLUMNS = {
    "onset": ("onset", "start", "begin"),
    "offset": ("offset", "end", "stop"),
    "pitch": ("midipitch", "midinote", "midi", "notenumber", "pitch", "note"),
    "velocity": ("velocity", "midivelocity", "vel"),
    "program": ("program", "midiprogram"),
}
"""Column names, in any case and optionally followed by "time" or "s"; the last two may be
missing."""
AS_THEY_COME = {name: place for place, name in enumerate(COLUMNS)}


class LabelError(ValueError):
    """A label file that cannot be read as notes."""


def read_table(path: Path) -> NoteList:
    """TSV or CSV with columns onset and offset (seconds), pitch (MIDI number) and optionally
    velocity and program (General MIDI, 0 to 127).

    In this order unless a header (COLUMNS) names another; separated by tabs, commas or semicolons.

    Raises:
        LabelError: naming the line that is not a note, or a header that names only some of the
            columns (comments after # aside).
    """
    places = AS_THEY_COME
    rows: list[list[float]] = []
    for number, cells in enumerate(_read_rows(path), start=1):
        if not any(cell.strip() for cell in cells):
            continue
        if not rows and not _is_number(cells[0]):
            found = _places([name for cell in cells for name in SPLIT.split(cell)])
            if not found and not cells[0].lstrip().startswith("#"):
                raise LabelError(f"{path}:{number}: names no onset, offset and pitch: {cells}")
            places = found or AS_THEY_COME
            continue
        there = {name: cells[place] for name, place in places.items() if place < len(cells)}
        try:
            values: dict[str, float] = {"velocity": UNKNOWN_VELOCITY, "program": UNKNOWN}
            values |= {name: float(cell) for name, cell in there.items()}
            if not _is_note(**values):
                raise ValueError
        except (TypeError, ValueError):
            words = "not onset, offset, pitch, velocity, program"
            raise LabelError(f"{path}:{number}: {words}: {cells}") from None
        values["program"] = class_of(int(values["program"]))
        rows.append([values[name] for name in COLUMNS])
    return note_list(np.array(rows).reshape(-1, len(COLUMNS)))


def _read_rows(path: Path) -> list[list[str]]:
    """Cells of all lines, split at the most frequent delimiter."""
    try:
        text = path.read_text(encoding="utf-8-sig")
        return list(csv.reader(text.splitlines(), delimiter=max(DELIMITERS, key=text.count)))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise LabelError(f"cannot read {path}: {error}") from None


def _places(names: list[str]) -> dict[str, int]:
    """The places of COLUMNS; empty if onset, offset or pitch are not named."""
    plain = [AFTER_NAME.sub("", re.sub("[^a-z]", "", name.lower()), count=1) for name in names]
    found = {
        column: next(plain.index(name) for name in known if name in plain)
        for column, known in COLUMNS.items()
        if not set(known).isdisjoint(plain)
    }
    return found if {"onset", "offset", "pitch"} <= found.keys() else {}


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _is_note(onset: float, offset: float, pitch: float, velocity: float, program: float) -> bool:
    known = 0 <= program < 128 or program == UNKNOWN
    return 0 <= onset <= offset < np.inf and 0 <= pitch < 128 and 0 <= velocity < 128 and known


def read_alignment(alignment: Path, notes: Path, begin_s: float) -> NoteList:
    """Estimated times of a score's notes, row for row."""
    aligned, written = read_columns(alignment), read_columns(notes)
    try:
        rows = [
            (float(time["start"]), float(time["end"]), int(note["pitch"]), int(note["velocity"]))
            for time, note in zip(aligned, written, strict=True)
        ]
    except (KeyError, TypeError, ValueError) as error:
        raise LabelError(f"cannot read {alignment} with {notes}: {error!r}") from None
    if not rows:
        raise LabelError(f"{alignment} has no notes")
    return note_list(np.array(rows) + [begin_s, begin_s, 0, 0])


def read_columns(path: Path) -> list[dict[str, str]]:
    """Rows by the names in the first. Raises LabelError."""
    head, *rows = _read_rows(path) or [[]]
    return [dict(zip(head, cells, strict=False)) for cells in rows if cells]
