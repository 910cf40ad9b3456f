"""The constant-Q filterbank: tuning, timing, masks and the distance of a sound from each pitch."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from model.config import (
    FRAMES,
    HOP,
    PITCHES,
    RANGE_CENTS,
    SAMPLE_RATE,
    SCALE_CENTS,
    WINDOW,
    FilterbankConfig,
)
from model.front_end.filterbank import GRID, Filterbank, SpectralPeaks

CONFIG = FilterbankConfig(lookahead=256)


BANK = Filterbank(CONFIG, SAMPLE_RATE).eval()
SAMPLES = CONFIG.context + WINDOW


def sine(frequency: float, samples: int = WINDOW) -> torch.Tensor:
    return torch.sin(2 * math.pi * frequency / SAMPLE_RATE * torch.arange(samples))


@pytest.mark.parametrize("pitch", [21, 60, 108])
def test_a_sine_in_tune_peaks_in_its_filter_at_full_scale(pitch: int) -> None:
    frequency = 440 * 2 ** ((pitch - 69) / 12)
    with torch.inference_mode():
        power = BANK.power(sine(frequency)[None])[0].mean(dim=1)
    middle = (pitch - CONFIG.lowest_pitch) * CONFIG.bins_per_semitone + 1
    assert abs(int(power.argmax()) - middle) <= (0 if pitch > 40 else 3)
    assert power[middle].item() == pytest.approx(1, abs=0.15)


def test_frames_peak_when_a_click_sounds() -> None:
    click = torch.zeros(1, WINDOW)
    frame = 45
    click[0, HOP * (frame + 1)] = 1.0
    with torch.inference_mode():
        before = BANK.longest - CONFIG.lookahead - HOP
        power = BANK.power(torch.nn.functional.pad(click, (before, CONFIG.lookahead)))
    treble = power[0, -60:]
    assert abs(treble.mean(dim=0).argmax().item() - frame) <= 1


def test_columns_are_silent_where_kernels_end_after_the_window() -> None:
    noise = torch.randn(1, CONFIG.context + WINDOW)
    features = BANK(noise)
    assert features.shape == (1, BANK.bins, CONFIG.halo + GRID)
    silence = BANK.compress(torch.zeros(()))
    assert torch.all(features[:, :, -CONFIG.edge :] == silence)
    assert torch.all(features[:, :, : -CONFIG.edge] > silence)
    # Columns within the window do not depend on the audio before it.
    within = (WINDOW - BANK.longest) // HOP + CONFIG.edge
    alone = BANK(noise[:, CONFIG.context :])
    torch.testing.assert_close(alone[..., -within:], features[..., -within:])


def cents(rows: torch.Tensor) -> np.ndarray:
    """Return the tuning of the first window in cents, NaN where it is silent."""
    row = rows[0].numpy()
    return np.where(row > 0, (row - 0.5) * SCALE_CENTS, np.nan)


def heard(audio: np.ndarray) -> np.ndarray:
    """Return the cents, [frames, PITCHES], of frames that depend on the audio alone."""
    peaks = SpectralPeaks(BANK.config, torch.arange(BANK.bins))
    with torch.inference_mode():
        features = BANK(torch.from_numpy(audio.astype(np.float32))[None])[..., -GRID:]
        return cents(peaks.of_windows(features, range(FRAMES - 1)))


def tone(pitch: float, overtones: int = 1, level: float = 0.2) -> np.ndarray:
    hz = 440 * 2 ** ((pitch - 69) / 12)
    time_s = np.arange(SAMPLES) / SAMPLE_RATE
    harmonics = (h for h in range(1, overtones + 1) if h * hz < 0.45 * SAMPLE_RATE)
    return level * np.sum([np.sin(2 * np.pi * h * hz * time_s) / h for h in harmonics], axis=0)


@settings(max_examples=12)
@given(st.integers(40, 90), st.floats(-45, 45), st.integers(1, 6), st.floats(0.003, 0.5))
def test_a_tone_is_found_to_a_few_cents(
    pitch: int, off: float, overtones: int, level: float
) -> None:
    found = heard(tone(pitch + off / 100, overtones, level))[:, pitch]
    assert np.abs(found - off).max() < 8


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
    """A shifted tone gives the columns of one in tune, to the nearest filter."""
    peaks = SpectralPeaks(BANK.config, torch.arange(BANK.bins))
    audio = torch.from_numpy(tone(69.1 + shift / 3, 4).astype(np.float32))[None]
    with torch.inference_mode():
        features = BANK.retuned(BANK(audio), torch.tensor([shift]))[..., -GRID:]
        found = cents(peaks.of_windows(features, range(FRAMES - 1)))[:, 69]
    assert np.abs(found - 10).max() < 6
