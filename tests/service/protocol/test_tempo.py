"""The beat of onsets that keep to one, and none of onsets that do not."""

import numpy as np
import pytest

from service.protocol.midi_file import Beat
from service.protocol.tempo import estimate_beat


def off_beat_s(beat: Beat, time_s: float) -> float:
    phase = (time_s - beat.first_s) / beat.period_s
    return abs(phase - round(phase)) * beat.period_s


@pytest.mark.parametrize("bpm", [52.0, 97.3, 190.0])
@pytest.mark.parametrize("first_s", [0.0, 3.1])
def test_a_metronome(bpm: float, first_s: float) -> None:
    onsets = [first_s + 60 / bpm * beat for beat in range(40)]
    beat = estimate_beat(onsets)
    assert beat is not None
    assert beat.bpm == pytest.approx(bpm, rel=0.002)
    assert all(off_beat_s(beat, onset) < 0.02 for onset in onsets)


@pytest.mark.parametrize("bpm", [80.0, 112.0, 150.0])
def test_a_player_who_is_human(bpm: float) -> None:
    """Quarters, eighths and rests, 12 ms off on average, chords now and then."""
    rng = np.random.default_rng(int(bpm))
    grid = np.arange(0, 120, 0.5)[rng.random(240) < np.tile([0.9, 0.35], 120)]
    onsets = 0.7 + grid * 60 / bpm + rng.normal(0, 0.012, len(grid))
    onsets = np.concatenate([onsets, rng.choice(onsets, 30) + 0.004])
    beat = estimate_beat(onsets.tolist())
    assert beat is not None
    octave = beat.bpm / bpm
    assert min(abs(octave / ratio - 1) for ratio in (0.5, 1, 2)) < 0.003
    on_grid = [off_beat_s(beat, onset) / beat.period_s for onset in onsets]
    assert np.mean([min(off, 0.5 - off) < 0.07 for off in on_grid]) > 0.9


def test_eighths_alone_are_halves_of_a_beat() -> None:
    beat = estimate_beat([0.25 * step for step in range(100)])
    assert beat is not None
    assert beat.bpm == pytest.approx(120, rel=0.002)


def test_no_beat_is_made_up() -> None:
    rng = np.random.default_rng(5)
    assert estimate_beat(rng.uniform(0, 60, 200).tolist()) is None
    assert estimate_beat([0.5 * beat for beat in range(5)]) is None
    assert estimate_beat([]) is None
    assert estimate_beat([1.0] * 50) is None
