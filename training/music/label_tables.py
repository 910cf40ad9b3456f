"""Note tables written by programs and data sets: TSV, CSV, MusicNet's, alignments."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import numpy as np

from model.instruments import UNKNOWN, class_of
from training.music.metrics import UNKNOWN_VELOCITY, NoteList, note_list
from training.music.musicnet_table import SOURCE_RATE, read_rows

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
DURATION = ("duration", "dur", "length")
"""Column that replaces the offset: seconds from the onset."""
MUSICNET = {"start_time", "end_time", "instrument", "note", "start_beat"}
"""Columns that identify a MusicNet table."""


class LabelError(ValueError):
    """A label file that cannot be read as notes."""


def read_table(path: Path) -> NoteList:
    """TSV or CSV with columns onset, offset, pitch (MIDI number) and optionally velocity and
    program (General MIDI, 0 to 127).

    In this order unless a header (COLUMNS) names another; separated by tabs, commas or semicolons.
    Times are in seconds, except in MusicNet tables, which are recognised by their columns.

    Raises:
        LabelError: naming the line that is not a note, or a header that names only some of the
            columns (comments after # aside).
    """
    places, lasting = AS_THEY_COME, False
    rows: list[list[float]] = []
    for number, cells in enumerate(_read_rows(path), start=1):
        if not any(cell.strip() for cell in cells):
            continue
        if not rows and not _is_number(cells[0]):
            names = [name.strip(" #").lower() for cell in cells for name in SPLIT.split(cell)]
            places, lasting = _places(names)
            if not places and not cells[0].lstrip().startswith("#"):
                raise LabelError(f"{path}:{number}: names no onset, offset and pitch: {cells}")
            places = places or AS_THEY_COME
            if MUSICNET <= set(names):
                return _read_musicnet(path)
            continue
        there = {name: place for name, place in places.items() if place < len(cells)}
        try:
            found = {name: float(cells[place]) for name, place in there.items()}
        except ValueError:
            raise LabelError(f"{path}:{number}: not numbers: {cells}") from None
        values = {"velocity": UNKNOWN_VELOCITY, "program": UNKNOWN, **found}
        if lasting and len(values) == len(COLUMNS):
            values["offset"] += values["onset"]
        if len(values) != len(COLUMNS) or not _is_note(**values):
            words = "not onset, offset, pitch, velocity, program"
            raise LabelError(f"{path}:{number}: {words}: {cells}")
        values["program"] = class_of(int(values["program"]))
        rows.append([values[name] for name in COLUMNS])
    return note_list(np.array(rows).reshape(-1, len(COLUMNS)))


def _read_musicnet(path: Path) -> NoteList:
    try:
        rows = read_rows(path)
    except ValueError as error:
        raise LabelError(str(error)) from None
    # MusicNet counts programs from 1.
    try:
        classes = [class_of(int(row["instrument"]) - 1) for row in read_columns(path)]
    except ValueError:
        raise LabelError(f"{path}: an instrument is not a number") from None
    times = np.array(rows).reshape(-1, 3) / (SOURCE_RATE, SOURCE_RATE, 1)
    velocity = np.full(len(rows), UNKNOWN_VELOCITY)
    return note_list(np.column_stack([times, velocity, classes]))


def _read_rows(path: Path) -> list[list[str]]:
    """Cells of all lines, split at the most frequent delimiter."""
    try:
        text = path.read_text(encoding="utf-8-sig")
        return list(csv.reader(text.splitlines(), delimiter=max(DELIMITERS, key=text.count)))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise LabelError(f"cannot read {path}: {error}") from None


def _places(names: list[str]) -> tuple[dict[str, int], bool]:
    """The places of COLUMNS, and whether the second is a DURATION.

    The default order if no column is named; empty if only some are.
    """
    plain = [AFTER_NAME.sub("", re.sub("[^a-z]", "", name), count=1) for name in names]

    def places(known: tuple[str, ...]) -> list[int]:
        return [plain.index(name) for name in known if name in plain][:1]

    found = {column: place for column, known in COLUMNS.items() for place in places(known)}
    lasting = "offset" not in found and bool(places(DURATION))
    if lasting:
        (found["offset"],) = places(DURATION)
    needed = {"onset", "offset", "pitch"}
    if needed <= found.keys():
        return found, lasting
    return ({} if needed & found.keys() or len(names) < 3 else AS_THEY_COME), False


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
