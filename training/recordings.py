"""Folders of recordings with note labels, in the layouts that data sets come in.

Audio and labels are matched by stem, wherever in the folder they lie (``flac/``, ``tsv/``, ...).
Labels are MIDI files, or TSV/CSV tables of onset s, offset s, pitch, velocity, or alignments as of
the Bach Violin Dataset: ``alignments/STEM.csv`` with start and end in seconds, row for row with
``notes/STEM.csv``, counted from the start that ``info.csv`` beside the two folders gives. Both may
have sub-folders, as that data set's do.
"""

from __future__ import annotations

import csv
import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import mido
import numpy as np
import pretty_midi

from training.metrics import NoteList, note_list

AUDIO = {".wav", ".flac", ".ogg", ".oga", ".mp3", ".opus", ".aif", ".aiff"}
MIDI = {".mid", ".midi"}
TABLES = {".tsv", ".csv"}
DELIMITERS = ("\t", ",", ";")
SPLIT = re.compile("[\t,;]")  # a header may use another delimiter than the rows
AFTER_NAME = re.compile("(time)?(s|sec|secs|seconds?)?$")
DEFAULT_VELOCITY = 64
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
    """Notes from the label files of one recording below a folder."""
    for path in candidates:
        if path.suffix.lower() in MIDI:
            return read_midi(path)
    places = {
        parent.name: (path, parent)
        for path in candidates
        for parent in path.parents
        if parent.is_relative_to(folder) and parent.name in ("alignments", "notes")
    }
    if len(places) == 2:
        (alignment, parent), (notes, _) = places["alignments"], places["notes"]
        begin = _start_seconds(parent.with_name("info.csv"), alignment.stem)
        return read_alignment(alignment, notes, begin)
    return read_table(candidates[0])


def read_midi(path: Path) -> NoteList:
    """Notes of a MIDI file; held pedals lengthen them."""
    try:
        midi = pretty_midi.PrettyMIDI(str(path))
    except (OSError, ValueError, EOFError, LookupError, mido.KeySignatureError) as error:
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
    pedal = [change for change in instrument.control_changes if change.number == 64]
    changes = [(c.time, c.value >= 64) for c in sorted(pedal, key=lambda change: change.time)]
    moments = [time for time, _ in changes]
    releases = [time for time, down in changes if not down]
    strikes: dict[int, list[float]] = {}
    for note in sorted(instrument.notes, key=lambda note: note.start):
        strikes.setdefault(note.pitch, []).append(note.start)
    last = instrument.get_end_time()
    for note in instrument.notes:
        end = note.end
        before = bisect_right(moments, end)
        if before and changes[before - 1][1]:
            release = bisect_right(releases, end)
            end = releases[release] if release < len(releases) else last
        following = strikes[note.pitch][bisect_right(strikes[note.pitch], note.start) :][:1]
        yield note, max(note.end, min([end, *following]))


def read_table(path: Path) -> NoteList:
    """TSV or CSV with the columns onset, offset, pitch (MIDI number) and perhaps velocity.

    In this order, unless a header names them otherwise (COLUMNS); between tabs, commas or
    semicolons. Seconds, but for the tables of MusicNet, which count samples and are known by their
    columns.

    Raises:
        LabelError: with the line that is at fault: no note, or a header, other than a comment
            behind #, that names some of the columns only.
    """
    places, lasting, per_second = list(range(4)), False, 1.0
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
                per_second = MUSICNET_RATE_HZ
            continue
        try:
            values = [float(cells[place]) for place in places if place < len(cells)]
        except ValueError:
            raise LabelError(f"{path}:{number}: not numbers: {cells}") from None
        if len(values) == 3:
            values.append(DEFAULT_VELOCITY)
        if lasting and len(values) == 4:
            values[1] += values[0]
        if len(values) != 4 or not _is_note(*values):
            raise LabelError(f"{path}:{number}: not onset, offset, pitch, velocity: {cells}")
        rows.append([values[0] / per_second, values[1] / per_second, *values[2:]])
    return note_list(np.array(rows))


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
    head, *rows = _read_rows(path) or [[]]
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
