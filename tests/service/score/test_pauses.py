"""Tests of the beats of music with long pauses."""

import numpy as np
import pytest

from service.score.beats import NO_BEAT_HINTS, BeatHints
from service.score.pauses import find_beats_between_pauses
from tests.service.score.music import tune

SECTION_S = 0.5 + np.cumsum(0.5 * np.exp(0.05 * np.sin(np.arange(65) / 9)))


@pytest.mark.parametrize("pause_s", [9.7, 65.3, 3000.0])
def test_pause_has_complete_bars_at_the_same_tempo(pause_s: float) -> None:
    section, shift_s = tune(SECTION_S, 4), SECTION_S[-1] - SECTION_S[0] + pause_s
    notes = np.concatenate([section, section + [shift_s, shift_s, 0, 0]])
    beats = find_beats_between_pauses(notes, NO_BEAT_HINTS)
    assert beats is not None
    assert np.all((np.diff(beats.bar) - 1) % 4 == 0)
    gaps_s = np.diff(beats.time_s)
    assert 0.42 < gaps_s.min() <= gaps_s.max() < 0.58
    for start_s in (SECTION_S[0], SECTION_S[0] + shift_s):
        assert beats.bar[np.abs(beats.time_s - start_s).argmin()] == 0


def test_first_downbeat_after_a_pause_is_respected() -> None:
    section = tune(SECTION_S, 4)
    notes = np.concatenate([section, section + [100, 100, 0, 0]])
    downbeat_s = SECTION_S[1] + 100
    beats = find_beats_between_pauses(notes, BeatHints(first_downbeat_s=downbeat_s))
    assert beats is not None
    assert beats.bar[np.abs(beats.time_s - downbeat_s).argmin()] == 0
