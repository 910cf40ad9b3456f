"""Counting notes in sounds without notes."""

import json
from pathlib import Path

import numpy as np
import pytest
import soundfile

from service.protocol.options import StreamOptions
from tests.fakes import FAKE_RATE_HZ, FakeTranscriber, play
from training.evaluate import main
from training.evaluation.junk import (
    Source,
    evaluate_junk,
)

GHOSTS = play([(69, 0.1, 0.3), (69, 0.5, 0.7), (81, 0.5, 0.7)], 1.0, FAKE_RATE_HZ)


def test_every_note_is_a_false_one() -> None:
    shown: list[str] = []
    silence = np.zeros(FAKE_RATE_HZ * 2, np.float32)
    sounds: list[Source] = [
        ("white noise", lambda: (GHOSTS, FAKE_RATE_HZ)),
        ("drums", lambda: (GHOSTS, FAKE_RATE_HZ)),
        ("digital silence", lambda: (silence, FAKE_RATE_HZ)),
        ("nothing", lambda: (silence[:0], FAKE_RATE_HZ)),
    ]
    figures = evaluate_junk(FakeTranscriber(), StreamOptions(), iter(sounds), shown.append)
    assert figures["model"] == "fake"
    drums = {
        "seconds": 1.0,
        "false_notes": 3,
        "false_notes_a_minute": 180.0,
        "pitches": {"69": 2, "81": 1},
    }
    found = figures["sounds"]
    assert found["drums"] == found["white noise"] == drums
    assert found["digital silence"]["false_notes_a_minute"] == 0
    assert found["nothing"]["false_notes_a_minute"] == 0
    assert "69 (2), 81 (1)" in shown[1]


def test_bad_input_is_a_message_and_a_status(
    tmp_path: Path, tiny_weights: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["junk", "--model", str(tiny_weights), "--seconds", "0.2", "--data-dir"]
    assert main([*command, str(tmp_path)]) == 1
    assert "no audio" in capsys.readouterr().err
    (tmp_path / "broken.wav").write_bytes(b"RIFF")
    spoilt = np.full(FAKE_RATE_HZ, np.nan, np.float32)
    soundfile.write(tmp_path / "nan.wav", spoilt, FAKE_RATE_HZ, subtype="FLOAT")
    soundfile.write(tmp_path / "slow.wav", GHOSTS, 4000)
    soundfile.write(tmp_path / "whole.wav", GHOSTS, FAKE_RATE_HZ)
    out = tmp_path / "out.json"
    assert main([*command, str(tmp_path), "--json", str(out)]) == 1
    printed = capsys.readouterr()
    assert printed.err == "3 not scored (see above)\n"
    assert printed.out.count("not scored") == 3
    figures = json.loads(out.read_text())
    assert list(figures["failures"]) == ["broken.wav", "nan.wav", "slow.wav"]
    assert "whole.wav" in figures["sounds"]
