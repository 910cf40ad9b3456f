"""Streaming resampling to the model's rate, with sample 0 at input time 0.

A linear-phase low-pass filter h (a sinc under a Kaiser window), evaluated at the output's times:

    y[i] = sum over n of h(n / f_in - i / f_out) x[n],    |n - i f_in / f_out| <= reach

Towards 11,025 Hz it is flat to 4.5 kHz, above the highest note of a piano, and 70 dB down from
6.5 kHz: what aliases lands above 4.5 kHz, or lies 70 dB below its level. Half of the filter's
length is what it holds back: 1.1 ms.

Each output sample is the same sum in the same order however the input is cut and wherever the
resampler begins, bit for bit. (soxr's usual quality holds back 68 ms; its bits depend on where it
began.)
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from model.low_pass import kaiser, low_pass

PASS, STOP = 0.82, 1.18  # edges of the filter's transition, as parts of half the lower rate
REJECTION_DB = 70.0
# Where the ratio of the rates needs more phases than these (44,101 Hz), the nearest is taken: its
# jitter of 1/2048 of an input sample lies 70 dB below a tone of 4 kHz.
MAX_PHASES = 1024
_PIECE = 1024  # output samples computed at once, so that their products stay in the cache


@dataclass(frozen=True, slots=True)
class RateRatio:
    """Which input samples an output sample is made of.

    Attributes:
        up, down: output sample i lies at input position i * down / up.
        reach: input samples on either side of that position that the filter covers, and most that
            it holds back; 0 if the rates are equal and samples pass through.
    """

    up: int
    down: int
    reach: int

    @classmethod
    def of(cls, input_rate_hz: int, output_rate_hz: int) -> RateRatio:
        common = math.gcd(input_rate_hz, output_rate_hz)
        up, down = output_rate_hz // common, input_rate_hz // common
        if up == down:
            return cls(1, 1, 0)
        taps, _ = kaiser(REJECTION_DB, (STOP - PASS) * min(1.0, up / down))
        return cls(up, down, taps // 2)

    def first_input(self, output: int) -> int:
        """The first input sample that an output sample is made of."""
        return max(0, output * self.down // self.up - max(0, self.reach - 1))

    def inputs(self, outputs: int) -> int:
        """Input samples from the beginning that the first ``outputs`` samples (at least 1) need."""
        return (outputs - 1) * self.down // self.up + self.reach + 1

    def outputs(self, inputs: int) -> int:
        """Number of output samples that this many input samples complete."""
        return max(0, -((self.reach - inputs) * self.up // self.down))


class Resampler:
    """float32 samples at one rate to another, chunk by chunk. Output sample i is the sound at i /
    output_rate_hz seconds: the filter's delay is compensated."""

    def __init__(self, input_rate_hz: int, output_rate_hz: int, first_output: int = 0) -> None:
        """Args:
        first_output: index of the first output sample; the first input sample is then
            ``ratio.first_input(first_output)``.
        """
        self.input_rate_hz = input_rate_hz
        self.output_rate_hz = output_rate_hz
        self.ratio = RateRatio.of(input_rate_hz, output_rate_hz)
        self._taken = self.ratio.first_input(first_output)
        self._given = first_output
        # Inputs still needed. Before the stream there was silence.
        self._kept = np.zeros(self._taken - self._first_needed, np.float32)

    def output_length(self, input_length: int) -> int:
        """Samples that ``input_length`` samples become in all: the nearest whole number."""
        scaled = 2 * input_length * self.output_rate_hz + self.input_rate_hz
        return scaled // (2 * self.input_rate_hz)

    def process(self, samples: NDArray[np.float32]) -> NDArray[np.float32]:
        """Output samples, shape [m], that the next input samples, shape [n], complete."""
        if not self.ratio.reach:
            self._taken += len(samples)
            self._given += len(samples)
            return samples
        heard = np.concatenate([self._kept, samples.astype(np.float32, copy=False)])
        begin = self._taken - len(self._kept)
        self._taken += len(samples)
        stop = max(self._given, self.ratio.outputs(self._taken))
        output = np.empty(stop - self._given, np.float32)
        for first in range(self._given, stop, _PIECE):
            last = min(first + _PIECE, stop)
            made = self._filter(heard, begin, np.arange(first, last))
            output[first - self._given : last - self._given] = made
        self._given = stop
        self._kept = heard[self._first_needed - begin :].copy()
        return output

    def finish(self) -> NDArray[np.float32]:
        """The last output samples, so that ``output_length`` of the input is reached exactly."""
        missing = max(0, self.output_length(self._taken) - self._given)
        return self.process(np.zeros(self.ratio.reach, np.float32))[:missing]

    @property
    def _first_needed(self) -> int:
        """The first input sample of the next output sample's sum, before the stream perhaps."""
        return self._given * self.ratio.down // self.ratio.up - max(0, self.ratio.reach - 1)

    def _filter(
        self, heard: NDArray[np.float32], begin: int, outputs: NDArray[np.int64]
    ) -> NDArray[np.float32]:
        """heard: input samples from index ``begin`` on; outputs: indexes [m] -> samples [m]."""
        ratio, taps = self.ratio, filter_taps(self.ratio)
        whole, part = np.divmod(outputs * ratio.down, ratio.up)
        width, step = taps.shape[1], heard.itemsize
        # Every run of `width` inputs; numpy's sliding_window_view, at a tenth of its cost.
        every = np.ndarray((len(heard) - width + 1, width), np.float32, heard, 0, (step, step))
        first = whole[0] - (ratio.reach - 1) - begin
        # Each row's sum has the same order, regardless of the number of rows.
        if ratio.up == 1:  # every output in the same phase
            windows = every[first : first + len(whole) * ratio.down : ratio.down]
            return np.einsum("ij,j->i", windows, taps[0])
        windows = every[whole - whole[0] + first]
        return np.einsum("ij,ij->i", windows, taps[part * len(taps) // ratio.up])


@lru_cache(maxsize=16)
def filter_taps(ratio: RateRatio) -> NDArray[np.float32]:
    """The filter at each phase of the output between two inputs: [phases, 2 * reach]. Column k
    weighs input sample floor(i * down / up) + 1 - reach + k."""
    phases = min(ratio.up, MAX_PHASES)
    edge = (PASS + STOP) / 2 * min(1.0, ratio.up / ratio.down)
    _, beta = kaiser(REJECTION_DB, STOP - PASS)
    every = low_pass(2 * ratio.reach * phases + 1, edge / phases, beta)
    columns = phases * np.arange(1, 2 * ratio.reach + 1)
    taps = every[columns - np.arange(phases)[:, None]]
    return (taps / taps.sum(axis=1, keepdims=True)).astype(np.float32)
