"""Excerpts: which notes sound in which audio."""

import numpy as np
import pytest

from training.music.notes import notes_of
from training.music.synth.excerpts import overlaid
from training.music.synth.render import Rendered


def rendered(pitches: list[int], part: int, level: float) -> Rendered:
    n = len(pitches)
    notes = notes_of(np.arange(n), np.arange(n) + 0.5, pitches, 70, part)
    return Rendered(np.full(100, level, np.float32), notes)


def test_overlaid_excerpts_sound_together_and_keep_all_their_notes() -> None:
    both = overlaid(rendered([60, 62, 64], 1, 0.5), rendered([48, 50], 0, 0.1), level_db=-6.0)
    np.testing.assert_allclose(both.audio, 0.5 + 0.5 * 10 ** (-6 / 20), rtol=1e-5)
    assert both.notes.pitch.tolist() == [60, 48, 62, 50, 64]
    assert both.notes.part.tolist() == [1, 2, 1, 2, 1]


@pytest.mark.parametrize("silent", [0, 1])
def test_an_excerpt_without_sound_may_be_overlaid(silent: int) -> None:
    parts = [rendered([60], 0, 0.5), rendered([48], 0, 0.5)]
    parts[silent] = Rendered(np.zeros(100, np.float32), notes_of([], [], []))
    both = overlaid(parts[0], parts[1], 0.0)
    assert np.isfinite(both.audio).all()
    assert len(both.notes) == 1
