"""Tests of the methods of a transcription, and of the library's other functions."""

import importlib
import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pretty_midi
import pytest
import torch

import rse_transcribe
from rse_transcribe.arguments import as_model
from tests.fakes import FakeTranscriber
from tests.paths import REPOSITORY
from tests.service.apps import RATE_HZ, melody


@pytest.fixture(scope="module")
def transcription() -> rse_transcribe.Transcription:
    return rse_transcribe.transcribe(melody(), RATE_HZ, model=FakeTranscriber())


def test_midi_has_tempo_and_notes(
    transcription: rse_transcribe.Transcription, tmp_path: Path
) -> None:
    transcription.save(tmp_path / "song.mid", tempo=75)
    assert (tmp_path / "song.mid").read_bytes() == transcription.midi(75)
    opened = pretty_midi.PrettyMIDI(str(tmp_path / "song.mid"))
    assert opened.get_tempo_changes()[1] == pytest.approx([75])
    for note, ours in zip(opened.instruments[0].notes, transcription.notes, strict=True):
        assert note.start == pytest.approx(ours.onset_s, abs=1e-3)
    for wrong in (0, 401, float("nan")):
        with pytest.raises(ValueError, match="the tempo must be from 20 to 400 BPM, not"):
            transcription.midi(wrong)
    with pytest.raises(ValueError, match=r"one of \.mid, \.json, \.csv, \.musicxml"):
        transcription.save(tmp_path / "song.wav")


def test_score_accepts_paths_of_its_formats(
    transcription: rse_transcribe.Transcription, tmp_path: Path
) -> None:
    score = transcription.score("Song")
    for path in (tmp_path / "song.xml", str(tmp_path / "song.musicxml")):
        score.save(path)
        assert Path(path).read_bytes() == score.musicxml
    with pytest.raises(ValueError, match=r"one of \.musicxml, .*, not '\.mid'"):
        score.save(tmp_path / "song.mid")
    assert not (tmp_path / "song.mid").exists()


def test_unknown_model_and_device_are_rejected() -> None:
    assert "live" in rse_transcribe.available_models()
    model = as_model("live", "cpu")
    assert model.config.name == "live"
    assert as_model(model, "cpu") is model
    with pytest.raises(ValueError, match="no weights 'nothing'"):
        rse_transcribe.load("nothing")
    for absent in ("abacus", "cuda:99"):
        with pytest.raises(ValueError, match=f"device .{absent}. is not available: "):
            rse_transcribe.load("live", device=absent)
    with pytest.raises(ValueError, match=r"model must be a name, a path or the result of load\(\)"):
        as_model(torch.nn.Linear(1, 1), "auto")  # type: ignore[arg-type]


def test_public_names_exist_and_are_documented() -> None:
    assert {"NoteEvent", "PedalEvent"} < set(rse_transcribe.__all__)  # `Stream.push` returns them
    for name in rse_transcribe.__all__:
        assert getattr(rse_transcribe, name).__doc__
        assert name in dir(rse_transcribe)
    assert rse_transcribe.__version__ == metadata.version("rse-transcribe")
    public = {name for name in dir(rse_transcribe) if not name.startswith("_")}
    assert public == set(rse_transcribe.__all__)


def test_import_without_installation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "version", pytest.fail)
    importlib.reload(rse_transcribe)


def test_user_file_that_hides_a_package_is_reported(tmp_path: Path) -> None:
    (tmp_path / "model.py").touch()
    completed = subprocess.run(
        [sys.executable, "-c", "import rse_transcribe as r; r.available_models"],
        cwd=tmp_path,
        env={
            **os.environ,
            "PYTHONPATH": f"{tmp_path}:{REPOSITORY}:{REPOSITORY / 'service' / 'library'}",
        },
        capture_output=True,
        text=True,
    )
    last = completed.stderr.splitlines()[-1]
    assert last.startswith(f"ImportError: {tmp_path / 'model.py'} hides the package 'model' of")
