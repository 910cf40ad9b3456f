"""Streaming resampling: independent of chunking, aligned, of exact length, within its latency."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from service.audio.resample import Resampler

MODEL_RATE_HZ = 11_025
RATES_HZ = [4_000, 8_000, 11_025, 12_345, 16_000, 22_050, 44_100, 48_000, 96_000, 384_000]


def resample(samples: NDArray[np.float32], rate_hz: int, chunks: list[int]) -> NDArray[np.float32]:
    resampler = Resampler(rate_hz, MODEL_RATE_HZ)
    out, start, turn = [], 0, 0
    while start < len(samples):
        size = chunks[turn % len(chunks)]
        out.append(resampler.process(samples[start : start + size]))
        start, turn = start + size, turn + 1
    return np.concatenate([*out, resampler.finish()])


@settings(max_examples=20, deadline=None)
@given(
    rate_hz=st.sampled_from([*RATES_HZ, 44_101]),
    count=st.integers(0, 60_000),
    chunks=st.lists(st.integers(1, 30_000), min_size=1, max_size=6),
    share=st.floats(0, 1),
)
def test_neither_chunks_nor_where_it_begins_change_a_bit(
    rate_hz: int, count: int, chunks: list[int], share: float
) -> None:
    samples = np.random.default_rng(count).standard_normal(count).astype(np.float32)
    whole = resample(samples, rate_hz, [max(count, 1)])
    np.testing.assert_array_equal(resample(samples, rate_hz, chunks), whole)
    assert whole.dtype == np.float32
    assert abs(len(whole) - count * MODEL_RATE_HZ / rate_hz) <= 0.5
    assert len(whole) == Resampler(rate_hz, MODEL_RATE_HZ).output_length(count)
    begin = int(share * len(whole))
    resampler = Resampler(rate_hz, MODEL_RATE_HZ, begin)
    rest = samples[resampler.ratio.first_input(begin) :]
    out = np.concatenate([resampler.process(rest), resampler.finish()])
    np.testing.assert_array_equal(out, whole[begin:])


def level_db(tone_hz: float, rate_hz: int) -> float:
    """Return the level of a resampled tone of full scale, without its ends."""
    tone = np.sin(2 * np.pi * tone_hz * np.arange(rate_hz) / rate_hz).astype(np.float32)
    out = resample(tone, rate_hz, [rate_hz])[1_000:-1_000]
    return float(10 * np.log10(2 * np.mean(out.astype(float) ** 2)))


@pytest.mark.parametrize("rate_hz", [44_100, 48_000])
def test_notes_pass_and_what_would_alias_onto_them_does_not(rate_hz: int) -> None:
    for tone_hz in (27.5, 440.0, 4_186.0, 4_500.0):
        assert abs(level_db(tone_hz, rate_hz)) < 0.1
    for tone_hz in (6_525.0, 8_000.0, 11_025.0, 15_000.0, 20_000.0):
        assert level_db(tone_hz, rate_hz) < -68


@pytest.mark.parametrize("rate_hz", RATES_HZ)
def test_the_output_is_the_input_at_the_same_times(rate_hz: int) -> None:
    def tone(at_hz: int) -> NDArray[np.float32]:
        time_s = np.arange(at_hz) / at_hz
        return (np.sin(2 * np.pi * 440 * time_s) * np.hanning(at_hz)).astype(np.float32)

    out = resample(tone(rate_hz), rate_hz, [997])
    np.testing.assert_allclose(out, tone(MODEL_RATE_HZ), atol=2e-3)
