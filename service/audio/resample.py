"""Streaming resampling to the model's rate, with sample 0 at input time 0.

Quality is soxr's LQ (linear phase, 16-bit). Towards 11,025 Hz it is flat to 4.2 kHz, above the
highest note of a piano, 3 dB down at 4.5 kHz, and free of aliases above 5.8 kHz. It holds back 40
to 45 ms of sound for its filter; HQ is flat to 5 kHz but holds back 84 ms, which a player feels.

soxr filters in blocks that are counted from its own first sample, so the last bits of its output
depend on where it began. To make them a function of the sound alone, wherever one begins to
listen, the stream is cut into segments at fixed places, and each is made by a filter of its own
that begins a fixed lead before it:

    segment 0   |--------------->
    segment 1             |-lead-|--------------->
    segment 2                               |-lead-|---------------> ...

A resampler can thus begin at any segment and give, bit for bit, what one gives that began at 0.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import soxr
from numpy.typing import NDArray

from service.session.options import MAX_SAMPLE_RATE_HZ, MIN_SAMPLE_RATE_HZ, SampleRateError

QUALITY = "LQ"
SEGMENT_S = 0.5  # at least: it is a whole number of samples at both rates
LEAD_S = 0.1  # at least, likewise; the filter reaches back 40 ms

_EMPTY = np.zeros(0, np.float32)


@dataclass(frozen=True, slots=True)
class Segments:
    """Where the segments of a stream lie, in samples.

    Attributes:
        inputs, outputs: length of a segment at the one and the other rate.
        lead, lead_outputs: the lead of a segment's filter at the one and the other rate.
    """

    inputs: int
    outputs: int
    lead: int
    lead_outputs: int

    @classmethod
    def of(cls, input_rate_hz: int, output_rate_hz: int) -> Segments:
        """Equal rates need no filter: every sample is a segment."""
        common = math.gcd(input_rate_hz, output_rate_hz)
        step, step_outputs = input_rate_hz // common, output_rate_hz // common
        if step == step_outputs:
            return cls(1, 1, 0, 0)
        length = math.ceil(SEGMENT_S * input_rate_hz / step)
        lead = math.ceil(LEAD_S * input_rate_hz / step)
        return cls(length * step, length * step_outputs, lead * step, lead * step_outputs)

    def holding(self, output: int) -> int:
        """Index of the segment that an output sample lies in."""
        return output // self.outputs

    def first_input(self, segment: int) -> int:
        """The first input sample that the segment's filter needs."""
        return max(0, segment * self.inputs - self.lead)

    def first_output(self, segment: int) -> int:
        """The first output sample of the segment."""
        return segment * self.outputs


class _Filter:
    """The filter of one segment: gives its output samples and no others."""

    def __init__(self, stream: soxr.ResampleStream, lead: int, length: int) -> None:
        self._stream = stream
        self._lead = lead  # output samples to drop still
        self.missing = length  # output samples to give still
        self.ready: list[NDArray[np.float32]] = []

    def feed(self, samples: NDArray[np.float32], last: bool = False) -> None:
        output = self._stream.resample_chunk(np.ascontiguousarray(samples, np.float32), last=last)
        wanted = output[self._lead : self._lead + self.missing]
        self._lead -= min(self._lead, len(output))
        self.missing -= len(wanted)
        self.ready.append(wanted)

    def take(self) -> list[NDArray[np.float32]]:
        ready, self.ready = self.ready, []
        return ready


class Resampler:
    """float32 samples at one rate to float32 samples at another, chunk by chunk.

    The output does not depend on the sizes of the chunks, bit for bit. Output sample i is the
    sound at i / output_rate_hz seconds: the filter's delay is compensated.
    """

    def __init__(self, input_rate_hz: int, output_rate_hz: int, segment: int = 0) -> None:
        """Args:
            segment: the first input sample is ``segments.first_input(segment)``, the first output
                sample ``segments.first_output(segment)``.

        Raises:
            SampleRateError: an input rate outside of 8,000 to 192,000 Hz.
        """
        if not MIN_SAMPLE_RATE_HZ <= input_rate_hz <= MAX_SAMPLE_RATE_HZ:
            raise SampleRateError(
                f"the sample rate must be from {MIN_SAMPLE_RATE_HZ} to {MAX_SAMPLE_RATE_HZ} Hz, "
                f"not {input_rate_hz}"
            )
        self.input_rate_hz = input_rate_hz
        self.output_rate_hz = output_rate_hz
        self.segments = Segments.of(input_rate_hz, output_rate_hz)
        self._taken = self.segments.first_input(segment)
        self._given = self.segments.first_output(segment)
        self._filters: deque[_Filter] = deque()  # those not through with their segment, in order
        self._next_segment = segment  # the first without a filter so far

    def output_length(self, input_length: int) -> int:
        """Samples that ``input_length`` samples become in all: the nearest whole number."""
        scaled = 2 * input_length * self.output_rate_hz + self.input_rate_hz
        return scaled // (2 * self.input_rate_hz)

    def process(self, samples: NDArray[np.float32]) -> NDArray[np.float32]:
        """Output samples, shape [m], that the next input samples, shape [n], complete."""
        if self.input_rate_hz == self.output_rate_hz:
            self._taken += len(samples)
            self._given += len(samples)
            return samples
        output: list[NDArray[np.float32]] = []
        for start in range(0, len(samples), self.segments.inputs):
            output += self._filtered(samples[start : start + self.segments.inputs])
        joined = np.concatenate([_EMPTY, *output])
        self._given += len(joined)
        return joined

    def finish(self) -> NDArray[np.float32]:
        """The last output samples, so that ``output_length`` of the input is reached exactly."""
        missing = max(0, self.output_length(self._taken) - self._given)
        output: list[NDArray[np.float32]] = []
        while self._filters:
            ending = self._filters.popleft()
            ending.feed(_EMPTY, last=True)
            output += ending.take()
        # soxr rounds likewise; the contract does not rest on that.
        self._given += missing
        return np.concatenate([*output, np.zeros(missing, np.float32)])[:missing]

    def _filtered(self, samples: NDArray[np.float32]) -> list[NDArray[np.float32]]:
        """What the filters make of at most a segment's length of samples."""
        for filter_ in self._filters:
            filter_.feed(samples)
        end = self._taken + len(samples)
        while (first := self.segments.first_input(self._next_segment)) < end:
            self._filters.append(self._open())
            self._filters[-1].feed(samples[max(0, first - self._taken) :])
        self._taken = end
        output: list[NDArray[np.float32]] = []
        while self._filters:
            output += self._filters[0].take()
            if self._filters[0].missing:
                break
            self._filters.popleft()
        return output

    def _open(self) -> _Filter:
        """The filter of the next segment."""
        lead = self.segments.lead_outputs if self._next_segment else 0
        self._next_segment += 1
        stream = soxr.ResampleStream(
            self.input_rate_hz, self.output_rate_hz, 1, dtype="float32", quality=QUALITY
        )
        return _Filter(stream, lead, self.segments.outputs)


@lru_cache(maxsize=64)
def latency_ms(input_rate_hz: int, output_rate_hz: int) -> float:
    """Most sound, in ms, that a resampler of these rates holds back: measured, once per pair."""
    if input_rate_hz == output_rate_hz:
        return 0.0
    resampler = Resampler(input_rate_hz, output_rate_hz)
    step = max(1, input_rate_hz // 1000)  # 1 ms, finer than any client's chunks
    silence = np.zeros(step, np.float32)
    given, held_s = 0, 0.0
    for taken in range(step, 2 * resampler.segments.inputs, step):
        given += len(resampler.process(silence))
        held_s = max(held_s, taken / input_rate_hz - given / output_rate_hz)
    return 1000.0 * held_s
