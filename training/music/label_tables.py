"""Tables of notes, as programs and data sets write them: TSV, CSV, MusicNet's, alignments."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import numpy as np

from training.music.metrics import UNKNOWN_VELOCITY, NoteList, note_list
from training.musicnet import layout

DELIMITERS = ("\t", ",", ";")
SPLIT = re.compile("[\t,;]")  # a header may use another delimiter than the rows
AFTER_NAME = re.compile("(time)?(s|sec|secs|seconds?)?$")
COLUMNS = {
    "onset": ("onset", "start", "begin"),
    "offset": ("offset", "end", "stop"),
    "pitch": ("midipitch", "midinote", "midi", "notenumber", "pitch", "note"),
    "velocity": ("velocity", "midivelocity", "vel"),
}
"""Names of a table's columns, in any case and with or without "time" and "s" behind them; the last
one may be missing."""
DURATION = ("duration", "dur", "length")
"""In the place of an offset: seconds from the onset."""
MUSICNET = {"start_time", "end_time", "instrument", "note", "start_beat"}
"""Columns by which a table of MusicNet is known."""


class LabelError(ValueError):
    """A label file that cannot be read as notes."""


def read_table(path: Path) -> NoteList:
    """TSV or CSV with the columns onset, offset, pitch (MIDI number) and perhaps velocity.

    In this order, unless a header names them otherwise (COLUMNS); between tabs, commas or
    semicolons. In seconds, but for the tables of MusicNet, which are known by their columns.

    Raises:
        LabelError: with the line that is at fault: no note, or a header, other than a comment
            behind #, that names some of the columns only.
    """
    places, lasting = list(range(4)), False
    rows: list[list[float]] = []
    for number, cells in enumerate(_read_rows(path), start=1):
        if not any(cell.strip() for cell in cells):
            continue
        if not rows and not _is_number(cells[0]):
            names = [name.strip(" #").lower() for cell in cells for name in SPLIT.split(cell)]
            places, lasting = _places(names)
            if not places and not cells[0].lstrip().startswith("#"):
                raise LabelError(f"{path}:{number}: names no onset, offset and pitch: {cells}")
            places = places or list(range(4))
            if MUSICNET <= set(names):
                return _read_musicnet(path)
            continue
        try:
            values = [float(cells[place]) for place in places if place < len(cells)]
        except ValueError:
            raise LabelError(f"{path}:{number}: not numbers: {cells}") from None
        if len(values) == 3:
            values.append(UNKNOWN_VELOCITY)
        if lasting and len(values) == 4:
            values[1] += values[0]
        if len(values) != 4 or not _is_note(*values):
            raise LabelError(f"{path}:{number}: not onset, offset, pitch, velocity: {cells}")
        rows.append(values)
    return note_list(np.array(rows))


def _read_musicnet(path: Path) -> NoteList:
    try:
        rows = layout.read_table(path)
    except layout.ArchiveError as error:
        raise LabelError(str(error)) from None
    return layout.as_notes(np.array(rows))


def _read_rows(path: Path) -> list[list[str]]:
    """Cells of all lines, between whichever delimiter the file has most of."""
    try:
        text = path.read_text(encoding="utf-8-sig")
        return list(csv.reader(text.splitlines(), delimiter=max(DELIMITERS, key=text.count)))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise LabelError(f"cannot read {path}: {error}") from None


def _places(names: list[str]) -> tuple[list[int], bool]:
    """Where the columns of COLUMNS are, and whether the second is a DURATION.

    As they come where none is named, no places where some are.
    """
    plain = [AFTER_NAME.sub("", re.sub("[^a-z]", "", name), count=1) for name in names]

    def place(known: tuple[str, ...]) -> list[int]:
        return [plain.index(name) for name in known if name in plain][:1]

    onset, offset, pitch, velocity = (place(known) for known in COLUMNS.values())
    duration = [] if offset else place(DURATION)
    found = [onset, offset or duration, pitch]
    if all(found):
        return [*onset, *offset, *duration, *pitch, *velocity], bool(duration)
    return ([] if any(found) or len(names) < 3 else list(range(4))), False


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
    aligned, written = read_columns(alignment), read_columns(notes)
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


def read_columns(path: Path) -> list[dict[str, str]]:
    """Rows by the names in the first. Raises LabelError."""
    head, *rows = _read_rows(path) or [[]]
    return [dict(zip(head, cells, strict=False)) for cells in rows if cells]
