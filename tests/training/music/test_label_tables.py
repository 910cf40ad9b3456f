"""Note tables as programs write them, and invalid ones."""

from pathlib import Path

import pytest

from model.config import INSTRUMENTS
from training.music.label_files import LabelError, read_table

HEADS = (b"id,onset,offset,velocity", b"0.5 1.5 60", b"names")  # which name too little
ROWS = (b"0.5,0.6,60,64,128", b"0.5,0.4,60,64", b"0.5,1.0", b"0.5,x,60,64")


def text(path: Path, content: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    return path


@pytest.mark.parametrize(
    "content",
    [
        "Velocity,note,start,end\n90,60,0.5,1.5\n\n",
        "\ufeffonset,offset,pitch,velocity\r\n0.5,1.5,60,90\r\n",
        "id,onset_time,offset_time,midi_pitch,velocity\n0,0.5,1.5,60,90\n",
        "# played\n\n# Velocity,note,start (s),end (s)\n90\t60\t0.5\t1.5\n",
        "start_time,end_time,instrument,note,velocity\n0.5,1.5,1,60,90\n",
    ],
)
def test_tables_as_programs_write_them(tmp_path: Path, content: str) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(content.encode())
    notes = read_table(path)
    columns = notes.onset_s, notes.offset_s, notes.pitch, notes.velocity
    assert [column.tolist() for column in columns] == [[0.5], [1.5], [60], [90]]


@pytest.mark.parametrize("head", ["", "onset,offset,note,velocity,program\n"])
def test_a_fifth_column_is_the_program(tmp_path: Path, head: str) -> None:
    path = text(tmp_path / "a.csv", f"{head}0.5,1.0,60,90,42\n1.5,2.0,62,90,48\n")
    assert read_table(path).instrument.tolist() == [INSTRUMENTS.index("cello"), -1]


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        *(((head, b"0.5,1.5,60,90"), "a.csv:1: names no onset") for head in HEADS),
        *(((b"0.1,0.2,60,64", row), "a.csv:2") for row in ROWS),
        ((b"\xff\xfe\x00\x01",), "cannot read .*a.csv"),
    ],
)
def test_what_is_no_table_is_named(tmp_path: Path, rows: tuple[bytes, ...], problem: str) -> None:
    (tmp_path / "a.csv").write_bytes(b"\n".join(rows))
    with pytest.raises(LabelError, match=problem):
        read_table(tmp_path / "a.csv")
