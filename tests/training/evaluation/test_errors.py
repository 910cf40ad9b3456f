"""Errors are counted where they belong."""

import json
from pathlib import Path
from unittest.mock import ANY

import numpy as np
import pytest

from model.config import HOP, PITCHES, SAMPLE_RATE
from service.protocol.options import StreamOptions
from tests.fakes import FakeTranscriber
from training.evaluate import main
from training.evaluation.errors import analyse, errors
from training.music.metrics import NoteList, note_list
from training.music.recordings import read_collection

FRAME_S = HOP / SAMPLE_RATE
FRAMES = 600


def notes(*rows: tuple[float, float, int]) -> NoteList:
    return note_list(np.array([(*row, 64) for row in rows]))


def test_false_notes_have_a_kind_and_what_is_found_an_octave() -> None:
    reference = notes((1.0, 2.0, 60), (4.0, 5.0, 48), (5.0, 6.0, 49))
    estimated = notes(
        (1.01, 2.0, 60),
        (1.5, 2.0, 60),  # again, while it sounds
        (2.7, 3.0, 60),  # again, while it fades
        (3.5, 3.9, 60),
        (3.99, 5.0, 48),
        (4.02, 5.0, 67),  # third partial of 48
        (4.5, 5.0, 67),  # not struck together with it
    )
    found = errors(reference, estimated, np.zeros((FRAMES, PITCHES), np.float32), FRAME_S)
    assert found.false_notes.tolist() == [2, 1, 2]
    figures = found.figures()
    assert figures["onset_recall"] == {"C3 to B3": 0.5, "C4 to B4": 1.0}
    assert figures["onset_error_quartiles_ms"][1] == pytest.approx(0, abs=1)


def test_recordings_add_up(tones: Path) -> None:
    (tones / "again.wav").write_bytes((tones / "tones.wav").read_bytes())
    (tones / "again.tsv").write_text((tones / "tones.tsv").read_text())
    shown: list[str] = []
    collection = read_collection(tones)
    report = analyse(collection, FakeTranscriber, StreamOptions(), 0.0, show=shown.append)
    one, two = report["recordings"].values()
    assert one == two
    assert report["overall"]["onset_recall"] == one["onset_recall"]
    assert report["overall"]["false_frames"] == 2 * one["false_frames"]
    assert set(one["onset_recall"].values()) == {1.0}
    assert [text.splitlines()[0] for text in shown] == ["again", "tones", "overall"]


def test_the_command_writes_json(tones: Path, tmp_path: Path, tiny_weights: Path) -> None:
    out = tmp_path / "errors.json"
    where = ["--data-dir", str(tones), "--model", str(tiny_weights), "--json", str(out)]
    assert main(["errors", *where]) == 0
    report = json.loads(out.read_text())
    assert report["recordings"].keys() == {"tones"}
    assert (report["model"], report["lookahead_ms"]) == ("live", 200)
    (tones / "bad.wav").write_bytes(b"RIFF no music")
    (tones / "bad.tsv").write_bytes((tones / "tones.tsv").read_bytes())
    assert main(["errors", *where, "--jobs", "1"]) == 1
    assert json.loads(out.read_text()) == report | {"failures": {"bad": ANY}}
