"""The choice of how notes are named and the pedal is read."""

from dataclasses import replace
from typing import cast

import pytest

from model.config import HEADS
from model.transcriber import TranscriptionModel
from service.notes.tracker_settings import TrackerSettings
from tests.fakes import FakeTranscriber
from training.evaluation.instruments import evaluate_instruments
from training.music.synth.config import SynthConfig
from training.shipping.naming import STREAM, NamingPieces, naming_settings

SECONDS = 3.0


def fake(heads: tuple[str, ...] = HEADS) -> TranscriptionModel:
    return cast(TranscriptionModel, FakeTranscriber(heads))


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


def test_weights_without_these_heads_are_refused(synth_config: SynthConfig) -> None:
    with pytest.raises(ValueError, match="no instruments and no pedal"):
        NamingPieces(fake(HEADS[:3]), synth_config, 1, SECONDS)
