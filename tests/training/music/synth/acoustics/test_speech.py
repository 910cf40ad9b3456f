"""Talk, as material without notes."""

from __future__ import annotations

import numpy as np
import pytest

from model.config import SAMPLE_RATE
from training.music.synth.acoustics.speech import speech

SECONDS = 12


@pytest.mark.parametrize("seed", range(6))
def test_it_is_voiced_and_hissed_by_turns_with_pauses(seed: int) -> None:
    sound = speech(SECONDS * SAMPLE_RATE, SAMPLE_RATE, np.random.default_rng(seed))
    assert sound.dtype == np.float32
    assert np.abs(sound).max() == pytest.approx(1, abs=1e-5)
    level = np.abs(sound[: len(sound) // 551 * 551].reshape(-1, 551)).max(axis=1)  # of 50 ms
    quiet = level < 0.02
    assert 0.03 < quiet.mean() < 0.7
    spectrum = np.abs(np.fft.rfft(sound)) ** 2
    low = spectrum[: len(spectrum) // 5].sum()  # below 1.1 kHz
    assert 0.5 < low / spectrum.sum() < 0.999


def test_its_pitch_never_rests() -> None:
    """The strongest partial of a moment moves on; that of a sung or played note would stay."""
    sound = speech(SECONDS * SAMPLE_RATE, SAMPLE_RATE, np.random.default_rng(1))
    hop, size = 2048, 4096
    frames = np.stack([sound[i : i + size] for i in range(0, len(sound) - size, hop)])
    loud = np.abs(frames).max(axis=1) > 0.1
    spectra = np.abs(np.fft.rfft(frames * np.hanning(size), axis=1))
    top = spectra[:, 30:600].argmax(axis=1) + 30
    both = loud[1:] & loud[:-1]
    cents = 1200 * np.abs(np.log2(top[1:] / top[:-1]))[both]
    assert both.sum() > 20
    assert np.median(cents) > 20


def test_a_seed_is_a_voice() -> None:
    one, same, other = (
        speech(SAMPLE_RATE, SAMPLE_RATE, np.random.default_rng(seed)) for seed in (4, 4, 5)
    )
    assert np.array_equal(one, same)
    assert not np.array_equal(one, other)


def test_a_moment_may_be_shorter_than_a_syllable() -> None:
    assert speech(5, SAMPLE_RATE, np.random.default_rng(0)).shape == (5,)
