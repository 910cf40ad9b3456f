"""Tests of the constant-Q filterbank: pitch, timing, masks and tuning in cents."""

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
from tests.fakes import tone_hz

CONFIG = FilterbankConfig(lookahead=256)
BANK = Filterbank(CONFIG, SAMPLE_RATE).eval()
SAMPLES = CONFIG.context + WINDOW


@pytest.mark.parametrize("pitch", [21, 60, 108])
def test_a_sine_peaks_in_the_filter_of_its_pitch(pitch: int) -> None:
    sine = torch.sin(2 * math.pi * tone_hz(pitch) / SAMPLE_RATE * torch.arange(WINDOW))
    with torch.inference_mode():
        power = BANK.power(sine[None])[0].mean(dim=1)
    middle = (pitch - CONFIG.lowest_pitch) * CONFIG.bins_per_semitone + 1
    assert abs(int(power.argmax()) - middle) <= (0 if pitch > 40 else 3)
    assert power[middle].item() == pytest.approx(1, abs=0.15)


def test_a_click_peaks_in_its_frame() -> None:
    click = torch.zeros(1, WINDOW)
    frame = 45
    click[0, HOP * (frame + 1)] = 1.0
    with torch.inference_mode():
        context = BANK.longest - CONFIG.lookahead - HOP
        power = BANK.power(torch.nn.functional.pad(click, (context, CONFIG.lookahead)))
    treble = power[0, -60:]
    assert abs(treble.mean(dim=0).argmax().item() - frame) <= 1


def test_filters_stay_in_float32_in_training() -> None:
    radians = 2 * math.pi / SAMPLE_RATE * torch.arange(WINDOW)
    chord = torch.stack([torch.sin(tone_hz(pitch) * radians) for pitch in (45, 61, 80)]).sum(dim=0)
    expected = BANK(0.1 * chord[None])
    with torch.autocast("cpu", torch.bfloat16):
        features = BANK(0.1 * chord[None])
    torch.testing.assert_close(features, expected)


def test_columns_whose_kernels_exceed_the_window_are_silent() -> None:
    noise = torch.randn(1, CONFIG.context + WINDOW)
    features = BANK(noise)
    assert features.shape == (1, BANK.bins, CONFIG.halo + GRID)
    silence = BANK.compress(torch.zeros(()))
    assert torch.all(features[:, :, -CONFIG.edge :] == silence)
    assert torch.all(features[:, :, : -CONFIG.edge] > silence)
    # Columns within the window do not depend on the audio before it.
    within = (WINDOW - BANK.longest) // HOP + CONFIG.edge
    without_context = BANK(noise[:, CONFIG.context :])
    torch.testing.assert_close(without_context[..., -within:], features[..., -within:])


def peak_cents(audio: np.ndarray, shift: int = 0) -> np.ndarray:
    """Return the distance of the spectral peaks from each pitch in cents, [frames, PITCHES].

    NaN marks pitches without a peak. ``shift`` is the filterbank's offset in bins.
    """
    peaks = SpectralPeaks(BANK.config, torch.arange(BANK.bins))
    with torch.inference_mode():
        features = BANK(torch.from_numpy(audio.astype(np.float32))[None])
        if shift:
            features = BANK.retuned(features, torch.tensor([shift]))
        row = peaks.of_windows(features[..., -GRID:], range(FRAMES - 1))[0].numpy()
    return np.where(row > 0, (row - 0.5) * SCALE_CENTS, np.nan)


def tone(pitch: float, partials: int = 1, level: float = 0.2) -> np.ndarray:
    hz = tone_hz(pitch)
    time_s = np.arange(SAMPLES) / SAMPLE_RATE
    harmonics = (h for h in range(1, partials + 1) if h * hz < 0.45 * SAMPLE_RATE)
    return level * np.sum([np.sin(2 * np.pi * h * hz * time_s) / h for h in harmonics], axis=0)


@settings(max_examples=12)
@given(st.integers(40, 90), st.floats(-45, 45), st.integers(1, 6), st.floats(0.003, 0.5))
def test_a_tone_is_measured_to_a_few_cents(
    pitch: int, offset_cents: float, partials: int, level: float
) -> None:
    cents = peak_cents(tone(pitch + offset_cents / 100, partials, level))[:, pitch]
    assert np.abs(cents - offset_cents).max() < 8


def test_simultaneous_notes_are_measured_separately() -> None:
    cents = peak_cents(tone(60.2, 5) + tone(66.7, 5))
    assert np.median(cents[:, 60]) == pytest.approx(20, abs=8)
    assert np.median(cents[:, 67]) == pytest.approx(-30, abs=8)


def test_silence_and_pitches_beyond_the_filters_have_no_peak() -> None:
    assert np.isnan(peak_cents(np.zeros(SAMPLES))).all()
    cents = peak_cents(tone(69))
    lowest, filters = BANK.config.lowest_pitch, BANK.config.semitones
    outside = [*range(lowest), *range(lowest + filters, PITCHES)]
    assert np.isnan(cents[:, outside]).all()
    inside = np.delete(cents, outside, axis=1)
    assert np.nanmax(np.abs(inside)) <= RANGE_CENTS


@pytest.mark.parametrize("shift", [-3, -1, 2])
def test_a_shifted_filterbank_tracks_a_detuned_tone(shift: int) -> None:
    cents = peak_cents(tone(69.1 + shift / 3, 4), shift)[:, 69]
    assert np.abs(cents - 10).max() < 6
