"""The search for the tracker's settings; none of it hears music."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable

import pytest

from model.transcriber import Transcriber
from service.notes.tracker_settings import TrackerSettings
from tests.training.conftest import TINY
from training.music.synth.config import SynthConfig
from training.shipping.tune import GRID, HeldOutPieces, at_an_end, tune


class Hill:
    """An objective whose best settings are known."""

    def __init__(
        self, height: Callable[[TrackerSettings], float], heads: tuple[str, ...] = ("frame",)
    ) -> None:
        self.heads = heads
        self.tried: list[TrackerSettings] = []
        self._height = height

    def objective(self, settings: TrackerSettings) -> float:
        self.tried.append(settings)
        return self._height(settings)


def test_the_top_is_found_though_settings_lean_on_each_other() -> None:
    def height(s: TrackerSettings) -> float:
        return -(
            abs(s.onset_threshold - 0.15)
            + abs(s.frame_on_threshold - s.onset_threshold - 0.3)
            + abs(s.release_frames - 8) / 20
            + abs(s.min_note_frames - 3) / 20
        )

    hill = Hill(height)
    found = tune(hill)
    assert found.onset_threshold == pytest.approx(0.15)
    assert found.frame_on_threshold == pytest.approx(0.45)
    assert (found.release_frames, found.min_note_frames) == (8, 3)
    assert found.onset_radius_frames == TrackerSettings().onset_radius_frames
    assert found.offset_threshold is None  # this model has no such head
    assert len(hill.tried) == len(set(hill.tried)) < sum(map(len, GRID.values())) * 2


@pytest.mark.parametrize("top", [None, 0.3])
def test_a_head_is_used_where_it_helps(top: float | None) -> None:
    def height(s: TrackerSettings) -> float:
        if top is None or s.offset_threshold is None:
            return float(s.offset_threshold is top)
        return 1 - abs(s.offset_threshold - top)

    found = tune(Hill(height, ("frame", "offset")))
    assert found.offset_threshold == (None if top is None else pytest.approx(top))


def test_the_end_of_a_grid_is_told(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        found = tune(Hill(lambda settings: settings.release_frames))
    assert found.release_frames == max(GRID["release_frames"])
    assert "release_frames 16 is at the end of its grid" in caplog.text
    assert at_an_end(found) == ["release_frames"]
    assert at_an_end(dataclasses.replace(found, release_frames=1, min_note_frames=2)) == []


def test_pieces_are_tracked_and_scored(synth_config: SynthConfig) -> None:
    pieces = HeldOutPieces(Transcriber(TINY), synth_config, pieces=1, seconds=4.0)
    assert pieces.heads == TINY.heads
    assert len(pieces.pieces) == 2  # one for each look-ahead
    for probabilities, reference in pieces.pieces:
        assert probabilities.shape[::2] == (len(TINY.heads), 128)
        probabilities[:] = 0.0  # as a model would that hears what is there
        frames = probabilities.shape[1]
        probabilities[0] = reference.roll(frames, pieces.frame_s)
        for onset, pitch in zip(reference.onset_s, reference.pitch, strict=True):
            probabilities[1, min(frames - 1, round(onset / pieces.frame_s)), pitch] = 1.0
    deaf = TrackerSettings(onset_threshold=1.0, frame_on_threshold=1.0, min_note_frames=1000)
    assert pieces.objective(TrackerSettings()) > max(1.0, pieces.objective(deaf))
