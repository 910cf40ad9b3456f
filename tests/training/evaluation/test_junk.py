"""Counting notes in sounds without notes."""

import json
from pathlib import Path

import numpy as np
import pytest
import soundfile

from service.protocol.options import StreamOptions
from tests.fakes import FAKE_RATE_HZ, FakeTranscriber, play
from training.evaluate import main
from training.evaluation.junk import Sound, evaluate_junk

GHOSTS = play([(69, 0.1, 0.3), (69, 0.5, 0.7), (81, 0.5, 0.7)], 1.0, FAKE_RATE_HZ)


def test_every_note_is_a_false_one() -> None:
    silence = np.zeros(FAKE_RATE_HZ * 2, np.float32)
    sounds: list[Sound] = [
        ("drums", GHOSTS, FAKE_RATE_HZ),
        ("digital silence", silence, FAKE_RATE_HZ),
        ("nothing", silence[:0], FAKE_RATE_HZ),
    ]
    figures = evaluate_junk(FakeTranscriber(), StreamOptions(), iter(sounds))
    assert figures["model"] == "fake"
    found = figures["sounds"]
    assert found["drums"] == {"seconds": 1.0, "false_notes": 3, "false_notes_a_minute": 180.0}
    assert found["digital silence"]["false_notes_a_minute"] == 0
    assert found["nothing"]["false_notes_a_minute"] == 0


def test_a_folder_is_judged_and_bad_input_a_message(
    tmp_path: Path, tiny_weights: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.json"
    command = ["junk", "--model", str(tiny_weights), "--seconds", "0.2", "--json", str(out)]
    command += ["--data-dir", str(tmp_path)]
    assert main(command) == 1
    assert "no audio" in capsys.readouterr().err
    soundfile.write(tmp_path / "whole.wav", GHOSTS, FAKE_RATE_HZ)
    assert main(command) == 0
    sounds = json.loads(out.read_text())["sounds"]
    assert list(sounds)[-1] == "whole.wav"
    assert {"digital silence", "pink noise", "sine sweep"} < sounds.keys()
    spoilt = np.full(FAKE_RATE_HZ, np.nan, np.float32)
    soundfile.write(tmp_path / "nan.wav", spoilt, FAKE_RATE_HZ, subtype="FLOAT")
    assert main(command) == 1
    assert "nan.wav" in capsys.readouterr().err
