"""Layout of the MusicNet archive (Thickstun et al., ICLR 2017)::

    DIR/ or DIR/musicnet/
      train_data/1727.wav     44.1 kHz, one channel
      train_labels/1727.csv   start_time,end_time,instrument,note,start_beat,end_beat,note_value
      test_data/  test_labels/

Label times are in samples at 44.1 kHz. A note sounds from start_time until just before end_time.
A file's name is the number of its recording. Other files, such as macOS's ``._1727.wav``, are
ignored. The paper's test set is TEST. The paper trains on the other recordings of the test folder.
"""

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import soundfile

from training.arrays import I64

SOURCE_RATE = 44_100  # Hz, of the audio and of the label times
COLUMNS = ("start_time", "end_time", "note")
FOLDERS = (("train_data", "train_labels"), ("test_data", "test_labels"))
SLACK = SOURCE_RATE // 10  # maximum number of samples by which a label may exceed the audio

Use = Literal["train", "validation", "test"]
TEST = (2303, 2382, 1819)
VALIDATION = (2131, 2384, 1792, 2514, 2567, 1876)


class ArchiveError(ValueError):
    """The archive is missing, incomplete or corrupt."""


@dataclass(frozen=True)
class Source:
    """The files of one recording."""

    number: int
    audio: Path
    labels: Path


def find(root: Path) -> dict[int, Source]:
    """Return all recordings of an archive, by number. Raises ArchiveError if there is no archive,
    or if a recording lacks its audio or its labels."""
    base = root / "musicnet" if (root / "musicnet").is_dir() else root
    if not all((base / folder).is_dir() for folder in FOLDERS[0]):
        raise ArchiveError(
            f"{root} is not the MusicNet archive: it lacks {' or '.join(FOLDERS[0])}. "
            "Unpack musicnet.tar.gz there (see training/PAPER.md for its source)."
        )
    sources: dict[int, Source] = {}
    for data, labels in FOLDERS:
        audio, tables = _numbered(base / data, ".wav"), _numbered(base / labels, ".csv")
        if audio.keys() != tables.keys():
            unpaired = ", ".join(map(str, sorted(audio.keys() ^ tables.keys())))
            raise ArchiveError(
                f"{base} is incomplete: {data} or {labels} lacks the recordings {unpaired}"
            )
        sources |= {number: Source(number, audio[number], tables[number]) for number in audio}
    return sources


def _numbered(folder: Path, suffix: str) -> dict[int, Path]:
    """Return the files of a folder whose names are numbers, by number."""
    paths = sorted(folder.glob(f"*{suffix}"))
    return {int(path.stem): path for path in paths if path.stem.isdecimal()}


def split(sources: dict[int, Source]) -> dict[Use, list[Source]]:
    """Split recordings into the paper's validation and test sets, and a training set of all others.
    Skips recordings of the paper's sets that are missing. Raises ArchiveError if a set is empty."""
    rest = sorted(sources.keys() - {*TEST, *VALIDATION})
    uses: dict[Use, Sequence[int]] = {"train": rest, "validation": VALIDATION, "test": TEST}
    sets = {use: [sources[n] for n in numbers if n in sources] for use, numbers in uses.items()}
    for use, members in sets.items():
        if not members:
            which = f" (of {', '.join(map(str, uses[use]))})" if uses[use] else ""
            raise ArchiveError(f"the archive has no recording for {use}{which}")
    return sets


def read_intervals(source: Source) -> I64:
    """Read the notes of a recording, (count, 3): start, end (exclusive) and MIDI note, sorted by
    start. Times are in samples at SOURCE_RATE. Labels that exceed the audio by up to SLACK are
    truncated. Raises ArchiveError for later labels, and for corrupt labels or audio."""
    path = source.labels
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows = [[int(row[name]) for name in COLUMNS] for row in csv.DictReader(file)]
    except (OSError, KeyError, TypeError, ValueError, csv.Error) as error:
        raise ArchiveError(f"{path} is not a MusicNet label table: {error!r}") from error
    try:
        length = soundfile.info(source.audio).frames
    except (OSError, RuntimeError) as error:
        raise ArchiveError(f"cannot read {source.audio}: {error}") from error
    intervals = np.array(rows, dtype=np.int64).reshape(-1, 3)
    begin, end, note = intervals.T
    if ((begin < 0) | (begin > end) | (note < 0) | (note > 127)).any():
        raise ArchiveError(f"{path} has labels with times or notes out of range")
    if (last := end.max(initial=0)) > length + SLACK:
        problem = f"a label ends at sample {last}, but the audio has {length}"
        raise ArchiveError(f"{path} does not belong to {source.audio}: {problem}")
    np.minimum(intervals[:, :2], length, out=intervals[:, :2])
    return intervals[np.lexsort((intervals[:, 2], intervals[:, 0]))]
