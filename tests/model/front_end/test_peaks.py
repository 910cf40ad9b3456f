"""How far a sound is from each pitch."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from model.cents import RANGE_CENTS, cents
from model.config import FRAMES, LIVE, PITCHES, SAMPLE_RATE, WINDOW
from model.front_end.filterbank import GRID, Filterbank
from model.front_end.peaks import SpectralPeaks

FRONT_END = LIVE.front_end
BANK = Filterbank(FRONT_END, SAMPLE_RATE)  # type: ignore[arg-type]
SAMPLES = FRONT_END.context + WINDOW  # type: ignore[union-attr]


def heard(audio: np.ndarray) -> np.ndarray:
    """Cents, [frames, PITCHES], of the frames that see nothing beyond the audio."""
    peaks = SpectralPeaks(BANK.config, torch.arange(BANK.bins))
    with torch.inference_mode():
        features = BANK(torch.from_numpy(audio.astype(np.float32))[None])[..., -GRID:]
        return cents(peaks.of_windows(features, range(FRAMES - 1))[0].numpy())


def tone(pitch: float, overtones: int = 1, level: float = 0.2) -> np.ndarray:
    hz = 440 * 2 ** ((pitch - 69) / 12)
    time_s = np.arange(SAMPLES) / SAMPLE_RATE
    harmonics = (h for h in range(1, overtones + 1) if h * hz < 0.45 * SAMPLE_RATE)
    return level * np.sum([np.sin(2 * np.pi * h * hz * time_s) / h for h in harmonics], axis=0)


@settings(max_examples=25)
@given(st.integers(40, 90), st.floats(-45, 45), st.integers(1, 6), st.floats(0.003, 0.5))
def test_a_tone_is_found_to_a_few_cents(
    pitch: int, off: float, overtones: int, level: float
) -> None:
    found = heard(tone(pitch + off / 100, overtones, level))[:, pitch]
    assert np.abs(found - off).max() < 6


def test_two_notes_at_once_are_each_found() -> None:
    found = heard(tone(60.2, 5) + tone(66.7, 5))
    assert np.median(found[:, 60]) == pytest.approx(20, abs=8)
    assert np.median(found[:, 67]) == pytest.approx(-30, abs=8)


def test_silence_and_pitches_beyond_the_filters_have_no_peak() -> None:
    assert np.isnan(heard(np.zeros(SAMPLES))).all()
    found = heard(tone(69))
    lowest, filters = BANK.config.lowest_pitch, BANK.config.semitones
    outside = [*range(lowest), *range(lowest + filters, PITCHES)]
    assert np.isnan(found[:, outside]).all()
    inside = np.delete(found, outside, axis=1)
    assert np.nanmax(np.abs(inside)) <= RANGE_CENTS


@pytest.mark.parametrize("shift", [-3, -1, 2])
def test_filters_read_higher_hear_a_tone_that_is_higher(shift: int) -> None:
    """As if in tune, to the nearest filter."""
    peaks = SpectralPeaks(BANK.config, torch.arange(BANK.bins))
    audio = torch.from_numpy(tone(69.1 + shift / 3, 4).astype(np.float32))[None]
    with torch.inference_mode():
        features = BANK.retuned(BANK(audio), torch.tensor([shift]))[..., -GRID:]
        found = cents(peaks.of_windows(features, range(FRAMES - 1))[0].numpy())[:, 69]
    assert np.abs(found - 10).max() < 6
