"""Streaming resampling to the model's rate, with sample 0 at input time 0.

Quality is soxr's LQ (linear phase, 16-bit). Towards 11,025 Hz it is flat to 4.2 kHz, above the
highest note of a piano, 3 dB down at 4.5 kHz, and free of aliases above 5.8 kHz. It holds back 40
to 45 ms of sound for its filter; HQ is flat to 5 kHz but holds back 84 ms, which a player feels.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import soxr
from numpy.typing import NDArray

from service.options import MAX_SAMPLE_RATE_HZ, MIN_SAMPLE_RATE_HZ, SampleRateError

QUALITY = "LQ"

_EMPTY = np.zeros(0, np.float32)


class Resampler:
    """float32 samples at one rate to float32 samples at another, chunk by chunk.

    The output does not depend on the sizes of the chunks, bit for bit. Output sample i is the
    sound at i / output_rate_hz seconds: the filter's delay is compensated.
    """

    def __init__(self, input_rate_hz: int, output_rate_hz: int) -> None:
        """Raises SampleRateError for an input rate outside of 8,000 to 192,000 Hz."""
        if not MIN_SAMPLE_RATE_HZ <= input_rate_hz <= MAX_SAMPLE_RATE_HZ:
            raise SampleRateError(
                f"the sample rate must be from {MIN_SAMPLE_RATE_HZ} to {MAX_SAMPLE_RATE_HZ} Hz, "
                f"not {input_rate_hz}"
            )
        self.input_rate_hz = input_rate_hz
        self.output_rate_hz = output_rate_hz
        self._taken = 0
        self._given = 0
        self._stream = None
        if input_rate_hz != output_rate_hz:
            self._stream = _open(input_rate_hz, output_rate_hz)

    def output_length(self, input_length: int) -> int:
        """Samples that ``input_length`` samples become in all: the nearest whole number."""
        scaled = 2 * input_length * self.output_rate_hz + self.input_rate_hz
        return scaled // (2 * self.input_rate_hz)

    def process(self, samples: NDArray[np.float32]) -> NDArray[np.float32]:
        """Output samples, shape [m], that the next input samples, shape [n], complete."""
        self._taken += len(samples)
        if self._stream is None:
            output = samples
        else:
            output = self._stream.resample_chunk(np.ascontiguousarray(samples, np.float32))
        self._given += len(output)
        return output

    def finish(self) -> NDArray[np.float32]:
        """The last output samples, so that ``output_length`` of the input is reached exactly."""
        tail = _EMPTY if self._stream is None else self._stream.resample_chunk(_EMPTY, last=True)
        missing = self.output_length(self._taken) - self._given
        tail = tail[:missing]  # soxr rounds likewise; the contract does not rest on that
        if len(tail) < missing:
            tail = np.concatenate([tail, np.zeros(missing - len(tail), np.float32)])
        self._given += missing
        return tail


@lru_cache(maxsize=64)
def latency_ms(input_rate_hz: int, output_rate_hz: int) -> float:
    """Most sound, in ms, that a resampler of these rates holds back: measured, once per pair."""
    if input_rate_hz == output_rate_hz:
        return 0.0
    resampler = Resampler(input_rate_hz, output_rate_hz)
    step = max(1, input_rate_hz // 1000)  # 1 ms, finer than any client's chunks
    silence = np.zeros(step, np.float32)
    given, held_s = 0, 0.0
    for taken in range(step, input_rate_hz // 2, step):
        given += len(resampler.process(silence))
        held_s = max(held_s, taken / input_rate_hz - given / output_rate_hz)
    return 1000.0 * held_s


def _open(input_rate_hz: int, output_rate_hz: int) -> soxr.ResampleStream:
    return soxr.ResampleStream(input_rate_hz, output_rate_hz, 1, dtype="float32", quality=QUALITY)
