"""Following the tuning of a performance."""

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
    """Plucked notes with overtones, all this many cents above the pitches, and some noise."""
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
    """At every block's end."""
    tuner = Tuner(RATE_HZ, BINS)
    found = []
    for end in range(BLOCK, len(samples), BLOCK):
        tuner.write(samples[end - BLOCK : end])
        found.append(tuner.at(end).shift)
    return found


def left(cents: float, shift: int) -> float:
    """Cents from the nearest pitch, once shifted."""
    return abs((cents - BIN_CENTS * shift + 50) % 100 - 50)


@settings(max_examples=12, deadline=None)
@given(st.floats(-50, 50), st.integers(0, 9))
def test_a_deviation_is_followed_within_seconds(cents: float, seed: int) -> None:
    found = shifts(melody(cents, seed=seed))
    tolerance = TOLERANCE_CENTS if abs(cents) < 42 else WRAP_TOLERANCE_CENTS
    assert all(left(cents, shift) <= tolerance + 3 for shift in found[8:])
    assert max(map(abs, found)) <= BINS // 2


def test_music_in_tune_and_noise_are_left_alone() -> None:
    assert set(shifts(melody(5.0))) == {0}
    noise = np.random.default_rng(1).normal(0, 0.1, 30 * RATE_HZ).astype(np.float32)
    assert set(shifts(noise)) == {0}
    assert set(shifts(np.zeros(5 * RATE_HZ, np.float32))) == {0}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("cents", [-48, 50])
def test_halfway_between_two_tunings_one_is_kept(cents: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    notes = [melody(cents + rng.normal(0, 6), 0.4, seed=100 * seed + n) for n in range(150)]
    found = shifts(np.concatenate(notes))
    assert found[-1] in (-1, 1)
    assert len(set(found[20:])) == 1


def test_a_drift_is_followed_to_half_a_semitone() -> None:
    drift = np.concatenate([melody(cents, 10.0, seed=7) for cents in range(0, -71, -10)])
    found = shifts(drift)
    assert found[0] == 0
    assert -1 in found
    assert found[-1] == 1


def test_a_voice_alone_is_left_alone() -> None:
    rng = np.random.default_rng(3)
    time_s = np.arange(15 * RATE_HZ) / RATE_HZ
    pitch = rng.uniform(-20, -5, 30)[(2 * time_s).astype(int)]
    pitch = pitch + 0.6 * np.sin(2 * np.pi * 5.7 * time_s)
    phase = 2 * np.pi * np.cumsum(CONCERT_HZ * 2 ** (pitch / 12)) / RATE_HZ
    voice = sum(0.1 / overtone * np.sin(overtone * phase) for overtone in range(1, 9))
    assert set(shifts((voice + 0.001 * rng.standard_normal(len(time_s))).astype(np.float32))) == {0}


@settings(max_examples=12, deadline=None)
@given(st.lists(st.integers(1, 20_000), max_size=20), st.integers(0, 40))
def test_chunks_do_not_matter_and_a_resumed_stream_goes_on_alike(
    chunks: list[int], cut: int
) -> None:
    samples = melody(-40.0, 8.0)
    whole, parts = Tuner(RATE_HZ, BINS), Tuner(RATE_HZ, BINS)
    whole.write(samples)
    for part in np.split(samples, np.cumsum(chunks)):
        parts.write(part)
    end = len(samples) - 1
    assert parts.at(end) == whole.at(end)
    sample = min(end, cut * 2000)
    first = max(0, sample - 5000)
    resumed = Tuner(RATE_HZ, BINS, None, first, sample if first else 0, whole.at(sample))
    resumed.write(samples[first:])
    for later in range(sample, end, 1000):
        assert resumed.at(later) == whole.at(later)
