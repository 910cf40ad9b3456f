"""Label tables of MusicNet, whose times are samples at 44.1 kHz."""

from __future__ import annotations

import csv
from pathlib import Path

SOURCE_RATE = 44_100  # Hz; also the unit of the labels' times
COLUMNS = ("start_time", "end_time", "note")


def read_rows(path: Path) -> list[tuple[int, int, int]]:
    """The labels of a recording: begin, end, MIDI note, in samples at SOURCE_RATE.

    Raises ValueError naming the line.
    """
    rows = []
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            table = csv.DictReader(file)
            missing = set(COLUMNS) - set(table.fieldnames or ())
            if missing:
                raise ValueError(f"{path} is not a MusicNet label table: no {sorted(missing)}")
            for row in table:
                begin, end, note = (_integer(row[name]) for name in COLUMNS)
                if begin is None or end is None or note is None:
                    raise ValueError(f"{path}:{table.line_num}: damaged label {list(row.values())}")
                if not 0 <= begin <= end or not 0 <= note < 128:
                    raise ValueError(
                        f"{path}:{table.line_num}: impossible label {begin, end, note}"
                    )
                rows.append((begin, end, note))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"cannot read {path}: {error}") from error
    return rows


def _integer(text: str | None) -> int | None:
    try:
        return None if text is None else int(text)
    except ValueError:
        return None
