"""Tests of the estimate of a performance's tuning."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from service.audio.tuning import BLOCK, CONCERT_HZ, TOLERANCE_CENTS, WRAP_TOLERANCE_CENTS, Tuner

RATE_HZ = 11_025
BINS = 3
BIN_CENTS = 100 / BINS


def melody(cents: float, seconds: float = 12.0, seed: int = 0) -> NDArray[np.float32]:
    """Return plucked notes with overtones, all ``cents`` above their pitches, with some noise."""
    rng = np.random.default_rng(seed)
    out = 0.001 * rng.standard_normal(int(seconds * RATE_HZ))
    for start in range(0, len(out), 4000):
        time_s = np.arange(min(6000, len(out) - start)) / RATE_HZ
        hz = CONCERT_HZ * 2 ** ((rng.integers(-20, 12) + cents / 100) / 12)
        for overtone in range(1, 5):
            wave = np.sin(2 * np.pi * overtone * hz * time_s)
            out[start : start + len(time_s)] += 0.1 / overtone * np.exp(-3 * time_s) * wave
    return out.astype(np.float32)


def shifts(samples: NDArray[np.float32]) -> list[int]:
    """Return the shift in bins at the end of every block."""
    tuner = Tuner(RATE_HZ, BINS)
    out = []
    for end in range(BLOCK, len(samples), BLOCK):
        tuner.write(samples[end - BLOCK : end])
        out.append(tuner.at(end).shift)
    return out


def remaining_cents(cents: float, shift: int) -> float:
    """Return the distance from the nearest pitch after the shift."""
    return abs((cents - BIN_CENTS * shift + 50) % 100 - 50)


@settings(max_examples=12)
@given(st.floats(-50, 50), st.integers(0, 9))
def test_tuning_is_estimated_within_seconds(cents: float, seed: int) -> None:
    estimates = shifts(melody(cents, seed=seed))
    tolerance = TOLERANCE_CENTS if abs(cents) < 42 else WRAP_TOLERANCE_CENTS
    assert all(remaining_cents(cents, shift) <= tolerance + 3 for shift in estimates[8:])
    assert max(map(abs, estimates)) <= BINS // 2


def test_music_in_tune_and_noise_are_not_shifted() -> None:
    assert set(shifts(melody(5.0))) == {0}
    noise = np.random.default_rng(1).normal(0, 0.1, 30 * RATE_HZ).astype(np.float32)
    assert set(shifts(noise)) == {0}
    assert set(shifts(np.zeros(5 * RATE_HZ, np.float32))) == {0}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("cents", [-48, 50])
def test_tuning_between_two_shifts_does_not_alternate(cents: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    notes = [melody(cents + rng.normal(0, 6), 0.4, seed=100 * seed + n) for n in range(150)]
    estimates = shifts(np.concatenate(notes))
    assert estimates[-1] in (-1, 1)
    assert len(set(estimates[20:])) == 1


def test_shift_follows_a_drift() -> None:
    drift = np.concatenate([melody(cents, 10.0, seed=7) for cents in range(0, -71, -10)])
    estimates = shifts(drift)
    assert estimates[0] == 0
    assert -1 in estimates
    assert estimates[-1] == 1


def test_unaccompanied_voice_is_not_shifted() -> None:
    rng = np.random.default_rng(3)
    time_s = np.arange(15 * RATE_HZ) / RATE_HZ
    pitch = rng.uniform(-20, -5, 30)[(2 * time_s).astype(int)]
    pitch = pitch + 0.6 * np.sin(2 * np.pi * 5.7 * time_s)
    phase = 2 * np.pi * np.cumsum(CONCERT_HZ * 2 ** (pitch / 12)) / RATE_HZ
    voice = sum(0.1 / overtone * np.sin(overtone * phase) for overtone in range(1, 9))
    assert set(shifts((voice + 0.001 * rng.standard_normal(len(time_s))).astype(np.float32))) == {0}


@settings(max_examples=12)
@given(st.lists(st.integers(1, 20_000), max_size=20), st.integers(0, 40))
def test_chunks_and_resume_do_not_change_the_estimate(sizes: list[int], cut: int) -> None:
    samples = melody(-40.0, 8.0)
    tuner, chunked = Tuner(RATE_HZ, BINS), Tuner(RATE_HZ, BINS)
    tuner.write(samples)
    for chunk in np.split(samples, np.cumsum(sizes)):
        chunked.write(chunk)
    end = len(samples) - 1
    assert chunked.at(end) == tuner.at(end)
    sample = min(end, cut * 2000)
    first = max(0, sample - 5000)
    resumed = Tuner(RATE_HZ, BINS, None, first, sample if first else 0, tuner.at(sample))
    resumed.write(samples[first:])
    for later in range(sample, end, 1000):
        assert resumed.at(later) == tuner.at(later)
