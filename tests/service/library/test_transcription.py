"""What can be done with a transcription, and what else the library has."""

import csv
from importlib import metadata
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest
import torch

import rse_transcribe
from model.storage import WeightsError
from rse_transcribe.models import DeviceError
from tests.fakes import FakeTranscriber
from tests.service.apps import PITCHES, RATE_HZ, melody


@pytest.fixture(scope="module")
def transcription() -> rse_transcribe.Transcription:
    return rse_transcribe.transcribe(melody(), RATE_HZ, model=FakeTranscriber())


def test_notes_are_rows_of_a_table(
    transcription: rse_transcribe.Transcription, tmp_path: Path
) -> None:
    transcription.save(tmp_path / "song.csv")
    with (tmp_path / "song.csv").open(newline="") as file:
        head, *rows = csv.reader(file)
    assert head == list(rse_transcribe.Note._fields)
    wanted = [["" if cell is None else str(cell) for cell in note] for note in transcription.notes]
    assert rows == wanted


@pytest.mark.parametrize("name", ["song.wav", "song"])
def test_other_endings_are_refused(
    transcription: rse_transcribe.Transcription, tmp_path: Path, name: str
) -> None:
    with pytest.raises(ValueError, match=r"save to \.mid, \.json or \.csv"):
        transcription.save(tmp_path / name)


def test_pretty_midi_has_the_notes(transcription: rse_transcribe.Transcription) -> None:
    (instrument,) = transcription.to_pretty_midi().instruments
    assert [note.pitch for note in instrument.notes] == PITCHES
    for note, ours in zip(instrument.notes, transcription.notes, strict=True):
        assert note.start == pytest.approx(ours.onset_s, abs=1e-3)


def test_plot_draws_frames_and_notes(transcription: rse_transcribe.Transcription) -> None:
    mpl.use("Agg")
    axes = transcription.plot()
    (image,), (lines,) = axes.images, axes.collections
    np.testing.assert_array_equal(image.get_array(), transcription.frame_probabilities.T)
    assert len(lines.get_paths()) == len(PITCHES)


def test_models_are_named_and_loaded() -> None:
    assert "live" in rse_transcribe.available_models()
    assert rse_transcribe.load("live").config.name == "live"
    with pytest.raises(WeightsError, match="no weights 'nothing'"):
        rse_transcribe.load("nothing")
    with pytest.raises(DeviceError, match="device 'abacus' cannot be used"):
        rse_transcribe.load("live", device="abacus")


def test_the_layer_mixes_a_sequence_and_learns() -> None:
    layer = rse_transcribe.ResidualShuffleExchange(16, blocks=1, dropout=0)
    x = torch.randn(2, 20, 16, requires_grad=True)
    out = layer(x)
    assert out.shape == x.shape
    out[0, 19].sum().backward()
    assert x.grad is not None
    assert (x.grad[0].abs().sum(dim=1) > 0).all()
    assert (x.grad[1] == 0).all()
    with pytest.raises(ValueError, match="maps"):
        rse_transcribe.ResidualShuffleExchange(0)


def test_every_public_name_is_there() -> None:
    for name in rse_transcribe.__all__:
        assert getattr(rse_transcribe, name).__doc__
        assert name in dir(rse_transcribe)
    assert rse_transcribe.__version__ == metadata.version("rse-transcribe")
