"""Tests of sample arrays, and of files whose frames have different sample rates or gaps."""

import io
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import av
import numpy as np
import pytest
from numpy.typing import NDArray

from service.audio.decode import AudioDecoder, SampleArray
from tests.service.audio.test_decode import RATE_HZ, decode_corrupt, noise


def test_sample_array_is_mixed_and_has_a_duration() -> None:
    samples = noise(channels=2)
    with AudioDecoder(SampleArray(samples, RATE_HZ)) as decoder:
        assert decoder.header_duration_s == len(samples) / RATE_HZ
        np.testing.assert_array_equal(np.concatenate(list(decoder)), samples.mean(axis=1))


def test_frames_with_many_rates_keep_their_pitch_and_duration() -> None:
    class Changing(SampleArray):
        def frames(self) -> Iterator[tuple[NDArray[np.float32], int]]:
            for rate_hz in range(8000, 48000, 1000):
                phase = 2 * np.pi * 440 * np.arange(rate_hz // 10) / rate_hz  # 44 periods
                yield np.sin(phase, dtype=np.float32)[:, None], rate_hz

    samples = np.concatenate(list(AudioDecoder(Changing(noise(), RATE_HZ))))
    tone = np.sin(2 * np.pi * 440 * np.arange(4 * RATE_HZ) / RATE_HZ)
    assert len(samples) == len(tone)
    assert np.sqrt(np.mean((samples - tone) ** 2)) < 0.05  # filters ring at each change


def with_second_part(rate_hz: int, gap_s: float) -> bytes:
    """Return a Matroska file whose second frame has its own rate, and follows a gap."""
    file = io.BytesIO()
    with av.open(file, "w", format="matroska") as out:
        stream: Any = out.add_stream("wavpack", rate=RATE_HZ, layout="mono")
        for rate, begin_s in ((RATE_HZ, 0.0), (rate_hz, 4096 / RATE_HZ + gap_s)):
            context: Any = av.CodecContext.create("wavpack", "w")
            context.sample_rate, context.layout, context.format = rate, "mono", "s16p"
            samples = np.full((1, 4096), 1000, np.int16)
            frame = av.AudioFrame.from_ndarray(samples, format="s16p", layout="mono")
            frame.rate = rate
            for packet in (*context.encode(frame), *context.encode(None)):
                packet.stream, packet.time_base = stream, Fraction(1, 1000)
                packet.pts = packet.dts = round(1000 * begin_s)
                packet.duration = round(1000 * 4096 / rate)
                out.mux(packet)
    return file.getvalue()


def test_long_gaps_are_filled_in_short_blocks() -> None:
    with AudioDecoder(io.BytesIO(with_second_part(RATE_HZ, 60.0))) as decoder:
        blocks = list(decoder)
    assert sum(map(len, blocks)) == pytest.approx(2 * 4096 + 60 * RATE_HZ, abs=100)
    assert max(map(len, blocks)) < 20_000
    samples, error = decode_corrupt(with_second_part(RATE_HZ, 2000.0))  # too long
    assert len(samples) == 2 * 4096
    assert error.endswith("a gap of 2000 s between timestamps")


def test_frames_with_an_extreme_rate_are_omitted() -> None:
    """A gap at this rate, and the filter that resamples it, would need gigabytes."""
    samples, error = decode_corrupt(with_second_part(16_000_000, 9.0))
    assert len(samples) == 4096
    assert error == "the file is corrupt after 0.1 s: a frame has an invalid sample rate"
