"""The constant-Q filterbank: tuning, timing, masks."""

import math

import pytest
import torch

from model.config import HOP, SAMPLE_RATE, WINDOW, FilterbankConfig
from model.front_end.filterbank import GRID, Filterbank

CONFIG = FilterbankConfig()


@pytest.fixture(scope="module")
def bank() -> Filterbank:
    return Filterbank(CONFIG, SAMPLE_RATE).eval()


def sine(frequency: float, samples: int = WINDOW) -> torch.Tensor:
    return torch.sin(2 * math.pi * frequency / SAMPLE_RATE * torch.arange(samples))


@pytest.mark.parametrize("pitch", [21, 60, 108])
def test_a_sine_in_tune_peaks_in_its_filter_at_full_scale(bank: Filterbank, pitch: int) -> None:
    frequency = 440 * 2 ** ((pitch - 69) / 12)
    with torch.inference_mode():
        power = bank.power(sine(frequency)[None])[0].mean(dim=1)
    middle = (pitch - CONFIG.lowest_pitch) * CONFIG.bins_per_semitone + 1
    assert abs(int(power.argmax()) - middle) <= (0 if pitch > 40 else 3)
    assert power[middle].item() == pytest.approx(1, abs=0.15)


def test_frames_peak_when_a_click_sounds(bank: Filterbank) -> None:
    click = torch.zeros(1, WINDOW)
    frame = 45
    click[0, HOP * (frame + 1)] = 1.0
    with torch.inference_mode():
        power = bank.power(
            torch.nn.functional.pad(click, (bank.longest - CONFIG.lookahead - HOP, 512))
        )
    treble = power[0, -60:]
    assert abs(treble.mean(dim=0).argmax().item() - frame) <= 1


def test_columns_are_silent_where_kernels_end_after_the_window(bank: Filterbank) -> None:
    noise = torch.randn(1, CONFIG.context + WINDOW)
    features = bank(noise)
    assert features.shape == (1, bank.bins, CONFIG.halo + GRID)
    silence = bank.compress(torch.zeros(()))
    assert torch.all(features[:, :, -CONFIG.edge :] == silence)
    assert torch.all(features[:, :, : -CONFIG.edge] > silence)
    # Those within the window need nothing before it.
    within = (WINDOW - bank.longest) // HOP + CONFIG.edge
    alone = bank(noise[:, CONFIG.context :])
    torch.testing.assert_close(alone[..., -within:], features[..., -within:])
