"""Tests of the score round trip: perform, transcribe and notate a score."""

from pathlib import Path

import numpy as np
import pytest

from model.config import HEADS
from service.notes.events import Note
from service.protocol.options import StreamOptions
from service.score.beats import BeatHints
from service.score.document import ScoreDocument
from tests.fakes import FakeTranscriber
from tests.service.score.music import as_notes, tune
from training.evaluation.score_roundtrip import (
    PerformedScore,
    compare,
    evaluate_scores,
    perform_score,
)
from training.music.synth.config import SynthConfig


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("scores")
    beats_s = np.arange(49) * 0.5
    hints = BeatHints(bpm=120, beats_per_bar=3, first_downbeat_s=0.0)
    ScoreDocument(as_notes(tune(beats_s, 3)), hints).save(folder / "waltz.musicxml")
    return folder


def perfect_transcription(performance: PerformedScore) -> list[Note]:
    """Return all notes of the performance."""
    notes = performance.notes
    columns = (notes.onset, notes.offset, notes.pitch, notes.velocity)
    return as_notes(np.stack([column.astype(float) for column in columns], 1))


def test_a_perfect_transcription_has_the_maximum_scores(folder: Path) -> None:
    performance = perform_score(folder / "waltz.musicxml", 40.0, np.random.default_rng(1))
    assert performance.beats_per_bar == performance.bar_quarters == 3
    assert performance.subdivision == 2
    figures = compare(performance, perfect_transcription(performance))
    assert figures["notes_found"] == figures["metre"] == figures["key"] == 1
    assert figures["place"] > 0.9
    assert figures["step"] > 0.9


def test_evaluate_scores_returns_means_over_scores(
    folder: Path, synth_config: SynthConfig, tmp_path: Path
) -> None:
    figures = evaluate_scores(FakeTranscriber(HEADS), StreamOptions(), synth_config, folder, 5.0)
    assert figures["count"] == 1
    assert figures["scores"]["waltz.musicxml"]["place"] == figures["place"]
    with pytest.raises(ValueError, match="musicxml"):
        evaluate_scores(FakeTranscriber(HEADS), StreamOptions(), synth_config, tmp_path, 5.0)
