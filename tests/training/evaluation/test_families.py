"""Tests of the accuracy of instruments and pedal, and of the score used for tuning."""

from dataclasses import replace
from typing import cast

import numpy as np
import pytest

from model.config import HEADS, INSTRUMENTS
from model.transcriber import TranscriptionModel
from service.notes.events import Note, PedalPress
from service.notes.tracker_settings import TrackerSettings
from service.protocol.options import StreamOptions
from tests.fakes import FAKE_PITCHES, FAKE_RATE_HZ, FakeTranscriber, play
from training.evaluation.families import FamilyCounts, evaluate_families
from training.music.families import Passage
from training.music.notes import joined, notes_of
from training.shipping.evidence import predict_passages
from training.shipping.tune import labelling_score

VIOLIN, CELLO = INSTRUMENTS.index("violin"), INSTRUMENTS.index("cello")
NOTES = notes_of([0.5, 1.5], [1.0, 2.0], FAKE_PITCHES[:2], instrument=[VIOLIN, CELLO])
AUDIO = play(
    [(pitch, 0.5 + i, 1.0 + i) for i, pitch in enumerate(FAKE_PITCHES[:2])], 3.0, FAKE_RATE_HZ
)
PASSAGE = Passage("duet", AUDIO, NOTES, np.zeros((0, 4)), pedal=np.array([[0.0, 1.5, 1.0]]))


def test_family_counts_score_instruments_and_pedal() -> None:
    counts = FamilyCounts()
    detected = [
        Note(i, pitch, 64, 1.0, 0, 0, 0.5 + i, 1.0 + i, "violin")
        for i, pitch in enumerate(FAKE_PITCHES[:2])
    ]
    counts.add(PASSAGE, detected, [PedalPress(0.0, 1.0)])
    assert counts.accuracy == 0.5
    assert counts.by_class == {"violin": 1.0, "cello": 0.0}
    up, down = counts.pedal_f1  # 30 frames of 50 ms each, with 10 errors
    assert down == pytest.approx(2 * 20 / (30 + 20))
    assert up == pytest.approx(2 * 30 / (30 + 40))


def test_evaluate_families_returns_figures_by_family() -> None:
    unlabelled = replace(PASSAGE, notes=joined([]))
    passages = {"duets": [PASSAGE], "no notes": [unlabelled]}
    figures = evaluate_families(FakeTranscriber(HEADS), StreamOptions(block_frames=16), passages)
    duets, no_notes = figures["families"].values()
    assert duets["onset_f1"] == 1.0
    assert duets["frame_f1"] > 0.9
    assert no_notes == {"false_notes_min": pytest.approx(40)}  # 2 notes in 3 s
    assert figures["classes"].keys() == {"violin", "cello"}


def test_naming_combines_instruments_and_pedal_over_families() -> None:
    pieces = predict_passages(
        cast(TranscriptionModel, FakeTranscriber(HEADS)), {"duets": [PASSAGE]}
    )
    (piece,) = pieces["duets"]
    counts, score = FamilyCounts(), piece.detect(TrackerSettings())
    counts.add(PASSAGE, score.notes, score.pedal)
    expected = counts.accuracy + sum(counts.pedal_f1) / 4
    assert labelling_score(pieces, TrackerSettings()) == pytest.approx(expected)
