"""Means and intervals of figures that are given."""

import json

import numpy as np
import pytest

from training.evaluation.real import Result, interval, report, table
from training.music.metrics import FIGURES


def result(value: float, **more: float) -> Result:
    return Result({figure: value for figure in FIGURES} | more, np.array([0.01, 0.02, 0.03]))


def test_an_interval_holds_the_mean() -> None:
    values = np.random.default_rng(0).normal(0.5, 0.1, 1000).tolist()
    low, high = interval(values) or (0.0, 0.0)
    assert low < np.mean(values) < high
    assert high - low == pytest.approx(2 * 1.96 * 0.1 / np.sqrt(1000), rel=0.2)
    assert interval([0.3]) is None


def test_a_figure_that_some_recordings_lack() -> None:
    made = report(
        {
            "a": result(0.2, onset_velocity_f1=0.9),
            "b": result(0.4),
            "c": Result({"onset_f1": 0.0}, np.zeros(0)),
        }
    )
    assert made["mean"]["frame_ap"] == pytest.approx(0.3)
    assert made["mean"]["onset_velocity_f1"] == 0.9
    assert made["interval"]["onset_velocity_f1"] is None
    assert "frame_ap" not in made["recordings"]["c"]
    assert "onset_velocity_f1" not in made["recordings"]["b"]
    assert made["onset_error_ms"]["median"] == pytest.approx(20)
    assert made["onset_error_ms"]["quartiles"] == pytest.approx([12.5, 27.5])
    json.dumps(made, allow_nan=False)
    printed = table(made)
    assert "0.300" in printed
    assert "+20.0 ms in the median" in printed
