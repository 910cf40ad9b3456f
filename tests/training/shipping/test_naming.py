"""The choice of how notes are named and the pedal is read."""

from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from model.config import HEADS
from model.storage import save_weights
from model.transcriber import TranscriptionModel
from service.notes.tracker_settings import TrackerSettings
from tests.fakes import FakeTranscriber
from tests.networks import TINY
from training.evaluation.instruments import evaluate_instruments
from training.music.synth.config import SynthConfig
from training.shipping.naming import STREAM, NamingPieces, main, naming_settings

SECONDS = 3.0


def fake() -> TranscriptionModel:
    return cast(TranscriptionModel, FakeTranscriber(HEADS))


def test_the_objective_is_what_the_service_does(synth_config: SynthConfig) -> None:
    passages = NamingPieces(fake(), synth_config, 1, SECONDS)
    measured = evaluate_instruments(FakeTranscriber(HEADS), STREAM, synth_config, 1, SECONDS)
    accuracy = sum(measured[kind]["instrument_accuracy"] for kind in ("solo", "ensemble"))
    always_down = measured["pedal_f1_if_always_down"]
    up = 1 - always_down / (2 - always_down)  # share of the frames
    always_up = 2 * up / (up + 1)
    # A pedal that nobody can press leaves only the frames with it up.
    never = passages.objective(TrackerSettings(pedal_presence_threshold=1.0))
    assert never == pytest.approx(accuracy + always_up / 2)
    pedal = 2 * (passages.objective(TrackerSettings()) - accuracy)
    assert measured["pedal_f1"] < pedal < measured["pedal_f1"] + 1


def test_the_other_settings_of_the_card_are_kept(
    synth_config: SynthConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    grid = {"belief_trust": (0.0, 1.0), "pedal_on_threshold": (0.3, 0.7)}
    monkeypatch.setattr("training.shipping.naming.GRID", grid)
    transcriber = fake()
    transcriber.card = {"tracker": {"onset_threshold": 0.35, "early_onset_thresholds": [0.9, 0.5]}}
    before = TrackerSettings.from_card(transcriber.card)
    found = naming_settings(transcriber, synth_config, 1, SECONDS)
    assert found == replace(before, **{name: getattr(found, name) for name in grid})


def test_weights_without_these_heads_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = replace(TINY, heads=HEADS[:5])
    weights = tmp_path / "pedal.safetensors"
    save_weights(TranscriptionModel(config), {"config": config.to_json()}, weights)
    assert main(["--model", str(weights), "--synth", str(tmp_path)]) == 1
    assert "lacks the heads instrument:bassoon, " in capsys.readouterr().err
