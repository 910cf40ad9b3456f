"""Resamples a stream to the model's rate. Output sample 0 is at input time 0.

The output is the input, filtered by a linear-phase low-pass h (a Kaiser-windowed sinc), at the
times of the output samples:

    y[i] = sum over n of h(n / f_in - i / f_out) x[n],    |n - i f_in / f_out| <= reach

For an output rate of 11,025 Hz and a higher input rate, the filter is flat up to 4.5 kHz, above the
highest note of a piano, and attenuates by 70 dB above 6.5 kHz. Aliases fall above 4.5 kHz or are
attenuated by 70 dB. The delay is half of the filter's length: 1.1 ms.

Each output sample is the same sum in the same order, bit for bit, regardless of the sizes of the
chunks and of the sample at which the resampler starts. (The output of soxr depends on where it
starts. Its default delay is 68 ms.)
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

PASS, STOP = 0.82, 1.18  # edges of the transition band, relative to half the lower rate
REJECTION_DB = 70.0
REACH = 12.0053  # half of the filter's length in samples of the lower rate (scipy's kaiserord)
# Maximum number of filter phases. If the ratio of the rates requires more (44,101 Hz), the next
# lower phase is used. This adds a delay of 1/2048 of an input sample on average. The jitter around
# this delay is at most as large. Its noise is 70 dB below a tone of 4 kHz (at 44.1 kHz).
MAX_PHASES = 1024
_BATCH = 1024  # output samples computed at once, so that their products fit the CPU cache


@dataclass(frozen=True, slots=True)
class RateRatio:
    """Ratio of two sample rates, and the input samples on which each output sample depends. Output
    sample i is at input position i * down / up."""

    up: int
    down: int
    reach: int  # delay of the filter (half its length) in input samples; 0 if the rates are equal

    @classmethod
    def of(cls, input_rate_hz: int, output_rate_hz: int) -> RateRatio:
        common = math.gcd(input_rate_hz, output_rate_hz)
        up, down = output_rate_hz // common, input_rate_hz // common
        if up == down:
            return cls(1, 1, 0)
        return cls(up, down, math.ceil(REACH / min(1.0, up / down)))

    def first_input(self, output: int) -> int:
        """Return the index of the first input sample on which the sample ``output`` depends."""
        return max(0, output * self.down // self.up - max(0, self.reach - 1))

    def inputs(self, outputs: int) -> int:
        """Return the number of input samples that the first ``outputs`` (1 or more) require."""
        return (outputs - 1) * self.down // self.up + self.reach + 1

    def outputs(self, inputs: int) -> int:
        """Return the number of output samples that can be computed from the first ``inputs``."""
        return max(0, -((self.reach - inputs) * self.up // self.down))


class Resampler:
    """Resamples float32 samples chunk by chunk. A sound has the same time in the output as in
    the input."""

    def __init__(self, input_rate_hz: int, output_rate_hz: int, first_output: int = 0) -> None:
        """The first input sample must be ``ratio.first_input(first_output)``."""
        self.input_rate_hz = input_rate_hz
        self.output_rate_hz = output_rate_hz
        self.ratio = RateRatio.of(input_rate_hz, output_rate_hz)
        self._received = self.ratio.first_input(first_output)
        self._returned = first_output
        # Input samples that later outputs need. Silence precedes the stream.
        self._buffer = np.zeros(self._received - self._first_needed, np.float32)

    def output_length(self, input_length: int) -> int:
        """Return the number of output samples of a complete input, rounded."""
        scaled = 2 * input_length * self.output_rate_hz + self.input_rate_hz
        return scaled // (2 * self.input_rate_hz)

    def process(self, samples: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the output samples [m] that can be computed with the next input samples [n]."""
        if not self.ratio.reach:
            self._received += len(samples)
            self._returned += len(samples)
            return samples
        inputs = np.concatenate([self._buffer, samples.astype(np.float32, copy=False)])
        begin = self._received - len(self._buffer)
        self._received += len(samples)
        stop = max(self._returned, self.ratio.outputs(self._received))
        output = np.empty(stop - self._returned, np.float32)
        for batch_start in range(self._returned, stop, _BATCH):
            batch_stop = min(batch_start + _BATCH, stop)
            filtered = self._filter(inputs, begin, np.arange(batch_start, batch_stop))
            output[batch_start - self._returned : batch_stop - self._returned] = filtered
        self._returned = stop
        self._buffer = inputs[self._first_needed - begin :].copy()
        return output

    def finish(self) -> NDArray[np.float32]:
        """Return the last output samples, so that the total is ``output_length`` of the input."""
        missing = max(0, self.output_length(self._received) - self._returned)
        return self.process(np.zeros(self.ratio.reach, np.float32))[:missing]

    @property
    def _first_needed(self) -> int:
        """Index of the first input sample that the next output needs. It may be negative."""
        return self._returned * self.ratio.down // self.ratio.up - max(0, self.ratio.reach - 1)

    def _filter(
        self, inputs: NDArray[np.float32], begin: int, outputs: NDArray[np.int64]
    ) -> NDArray[np.float32]:
        """Return the output samples at ascending indexes. begin: index of the first input."""
        ratio, taps = self.ratio, filter_taps(self.ratio)
        position = outputs * ratio.down // ratio.up
        width, step = taps.shape[1], inputs.itemsize
        # Equal to numpy's sliding_window_view(inputs, width), at a tenth of its cost.
        spans = np.ndarray((len(inputs) - width + 1, width), np.float32, inputs, 0, (step, step))
        first = position - (ratio.reach - 1) - begin
        # einsum adds each row in the same order, regardless of the number of rows.
        if ratio.up == 1:  # all outputs have the same phase
            used = spans[first[0] : first[-1] + 1 : ratio.down]
            return np.einsum("ij,j->i", used, taps[0])
        if ratio.up > MAX_PHASES:  # _periodic_taps would need too much memory
            taps = _taps_at(ratio, outputs)
        else:
            start = int(outputs[0]) % ratio.up
            taps = _periodic_taps(ratio)[start : start + len(outputs)]
        return np.einsum("ij,ij->i", spans[first], taps)


@lru_cache(maxsize=16)
def filter_taps(ratio: RateRatio) -> NDArray[np.float32]:
    """Return the taps of the filter, [phases, 2 * reach]. A phase is the position of an output
    sample between two input samples. For output sample i, column k is the weight of input sample
    floor(i * down / up) + 1 - reach + k."""
    # The import of SciPy takes a second and 50 MiB, so processes that do not resample avoid it.
    # Workers import SciPy when they start (model/fast/filters.py).
    from scipy.signal import firwin, kaiser_beta

    phases = min(ratio.up, MAX_PHASES)
    edge = (PASS + STOP) / 2 * min(1.0, ratio.up / ratio.down)
    window = ("kaiser", kaiser_beta(REJECTION_DB))
    prototype = firwin(2 * ratio.reach * phases + 1, edge / phases, window=window)
    columns = phases * np.arange(1, 2 * ratio.reach + 1)
    taps = prototype[columns - np.arange(phases)[:, None]]
    return (taps / taps.sum(axis=1, keepdims=True)).astype(np.float32)


@lru_cache(maxsize=16)
def _periodic_taps(ratio: RateRatio) -> NDArray[np.float32]:
    """Return the taps of a period of outputs and of _BATCH more outputs, one row each. Slices of
    this array are faster than _taps_at."""
    return _taps_at(ratio, np.arange(ratio.up + _BATCH))


def _taps_at(ratio: RateRatio, outputs: NDArray[np.int64]) -> NDArray[np.float32]:
    taps = filter_taps(ratio)
    return taps[outputs * ratio.down % ratio.up * len(taps) // ratio.up]
