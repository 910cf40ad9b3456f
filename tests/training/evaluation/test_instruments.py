"""Instruments and the pedal on rendered passages."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from model.config import HEADS, INSTRUMENTS
from service.protocol.options import StreamOptions
from tests.fakes import FakeTranscriber
from training.evaluation.instruments import evaluate_instruments
from training.evaluation.reports.pictures import draw_confusion
from training.music.synth.config import SynthConfig


def test_figures_of_solos_ensembles_and_pianos(synth_config: SynthConfig) -> None:
    lines: list[str] = []
    stream = StreamOptions(block_frames=16)
    figures = evaluate_instruments(
        FakeTranscriber(HEADS), stream, synth_config, 1, 3.0, show=lines.append
    )
    solo = figures["solo"]
    counts = np.array(figures["counts"]["solo"])
    assert solo["notes"] == counts.sum()
    assert set(figures["classes"]) <= set(INSTRUMENTS)
    assert sum(line.startswith("piano") for line in lines) == 10
    # Of several classes only: a single one given would always be right.
    assert set(figures["ensemble"]) - set(solo) == {"given"}
    assert all(line.startswith("ensemble") == (", given " in line) for line in lines)


def test_the_picture_of_the_confusion(tmp_path: Path) -> None:
    counts = np.zeros((len(INSTRUMENTS), len(INSTRUMENTS)), np.int64)
    counts[5, 5], counts[5, 6], counts[7, 7] = 90, 10, 40
    path = tmp_path / "pictures" / "confusion.png"
    draw_confusion(path, "of three", counts)
    with Image.open(path) as picture:
        assert picture.size[0] == pytest.approx(picture.size[1])
        assert len(set(picture.convert("RGB").get_flattened_data())) > 20
