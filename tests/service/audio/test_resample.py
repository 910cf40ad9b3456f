"""Tests of the streaming resampler."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from service.audio.resample import Resampler

Sound = NDArray[np.float32]
MODEL_RATE_HZ = 11_025
RATES_HZ = [4_000, 8_000, 11_025, 12_345, 16_000, 22_050, 44_100, 48_000, 96_000, 384_000]


def resample(samples: Sound, rate_hz: int, sizes: Sequence[int] = ()) -> Sound:
    """Return the resampled samples. The input arrives in chunks of ``sizes``, then the rest."""
    resampler = Resampler(rate_hz, MODEL_RATE_HZ)
    chunks = np.split(samples, np.cumsum(sizes, dtype=int))
    return np.concatenate([*map(resampler.process, chunks), resampler.finish()])


@settings(max_examples=20)
@given(
    rate_hz=st.sampled_from([*RATES_HZ, 44_101]),
    count=st.integers(0, 60_000),
    sizes=st.lists(st.integers(1, 30_000), max_size=6),
    share=st.floats(0, 1),
)
def test_chunks_and_start_position_change_no_bit(
    rate_hz: int, count: int, sizes: list[int], share: float
) -> None:
    samples = np.random.default_rng(count).standard_normal(count).astype(np.float32)
    expected = resample(samples, rate_hz)
    np.testing.assert_array_equal(resample(samples, rate_hz, sizes), expected)
    assert expected.dtype == np.float32
    assert abs(len(expected) - count * MODEL_RATE_HZ / rate_hz) <= 0.5
    assert len(expected) == Resampler(rate_hz, MODEL_RATE_HZ).output_length(count)
    start = int(share * len(expected))
    resampler = Resampler(rate_hz, MODEL_RATE_HZ, start)
    rest = samples[resampler.ratio.first_input(start) :]
    out = np.concatenate([resampler.process(rest), resampler.finish()])
    np.testing.assert_array_equal(out, expected[start:])


def level_db(tone_hz: float, rate_hz: int) -> float:
    """Return the level of a resampled full-scale tone, without its ends."""
    tone = np.sin(2 * np.pi * tone_hz * np.arange(rate_hz) / rate_hz).astype(np.float32)
    out = resample(tone, rate_hz)[1_000:-1_000]
    return float(10 * np.log10(2 * np.mean(out.astype(float) ** 2)))


@pytest.mark.parametrize("rate_hz", [44_100, 48_000])
def test_notes_pass_and_aliases_are_suppressed(rate_hz: int) -> None:
    for tone_hz in (27.5, 440.0, 4_186.0, 4_500.0):
        assert abs(level_db(tone_hz, rate_hz)) < 0.1
    for tone_hz in (6_525.0, 8_000.0, 11_025.0, 15_000.0, 20_000.0):
        assert level_db(tone_hz, rate_hz) < -68


@pytest.mark.parametrize("rate_hz", RATES_HZ)
def test_output_is_aligned_with_the_input(rate_hz: int) -> None:
    def tone(sample_rate_hz: int) -> Sound:
        time_s = np.arange(sample_rate_hz) / sample_rate_hz
        return (np.sin(2 * np.pi * 440 * time_s) * np.hanning(sample_rate_hz)).astype(np.float32)

    out = resample(tone(rate_hz), rate_hz)
    np.testing.assert_allclose(out, tone(MODEL_RATE_HZ), atol=2e-3)
