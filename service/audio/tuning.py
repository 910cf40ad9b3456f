"""Estimates the deviation of a performance from A4 = 440 Hz, and shifts the filterbank to match.

In another tuning, all notes deviate by about the same number of cents from the network's pitches.
Each block of audio yields a vector: the mean of exp(2 pi i deviation / 100 cents) over its spectral
peaks, weighted by their amplitudes. The angle of the leaky sum of these vectors gives the deviation
of the performance. The sum is longer if the vectors agree. Once it is long enough, the network uses
filters that are ``shift`` bins higher, so that the remaining deviation is at most half a bin, or 24
cents near +-50 cents (a bin is 33 cents, with three bins per semitone)::

    deviation  -50        -43         -17          0          17          43         50 cents
    shift         -1 or 1  |    -1     |           0          |     1     |  -1 or 1

The estimate cannot distinguish a deviation of one semitone from no deviation. If a performance
drifts by more than half a semitone, the later notes are therefore transcribed a semitone off. Only
peaks that do not move from one spectrum to the next count, which excludes glides, vibrato and
noise. A singer therefore rarely changes the shift. This is intended: unaccompanied singers drift,
and their notes should get the nearest pitches. Streams and recordings have the same estimates.
"""

import math

import numpy as np
from numpy.typing import NDArray

from service.protocol.checkpoint import Tuning

CONCERT_HZ = 440.0
BLOCK = 4096  # samples at the model's rate per estimate; 372 ms at 11,025 Hz
TOLERANCE_CENTS = 17.0  # remaining deviation (half a bin) above which the shift changes
# Limit that applies instead if the new shift would assign the notes to neighbouring pitches. A
# performance halfway between two pitches keeps its pitches until it drifts by 7 cents more.
WRAP_TOLERANCE_CENTS = 24.0
_DECAY = 0.97  # factor of the sum per block: the last 8.5 s have half of the total weight
# Minimum length of the sum, in total and per block, at which the shift may change. Instruments
# reach 0.3 to 0.9 per block, so the shift follows after 1 to 4 s. Singers reach 0.1 to 0.3.
_MIN_SUM, _MIN_AGREEMENT = 3.0, 0.15
_DIGITS = 6
_REMEMBERED = 2048  # number of stored estimates: 13 min, more than all segments in flight

_SPAN = 2048  # samples of a spectrum
_STEP = 1024  # samples between spectra
_BINS = 4096  # length of the Fourier transform
_LOWEST_HZ, _HIGHEST_HZ = 150.0, 2500.0
_PEAKS = 12  # maximum number of peaks per spectrum
_FAINT = 10 ** (-30 / 20)  # minimum amplitude of a peak relative to the highest peak
_SILENT = 1e-4  # minimum amplitude of a peak relative to a sine at full scale
_STEADY_CENTS = 8.0  # maximum movement of a peak between two spectra
_WINDOW = np.hanning(_SPAN).astype(np.float32) * np.float32(4 / _SPAN)


def add_block(tuning: Tuning, vector: complex, bins_per_semitone: int) -> Tuning:
    """Return the estimate after one more block. vector: the block's vector."""
    total = _DECAY * complex(tuning.along, tuning.across) + vector
    blocks = _DECAY * tuning.blocks + 1
    shift = tuning.shift
    if abs(total) >= max(_MIN_SUM, _MIN_AGREEMENT * blocks):
        bin_cents = 100.0 / bins_per_semitone
        deviation = 100 * math.atan2(total.imag, total.real) / math.tau
        remaining = (deviation - bin_cents * shift + 50) % 100 - 50
        moved = shift + round(remaining / bin_cents)
        half = bins_per_semitone // 2
        wrapped = (moved + half) % bins_per_semitone - half
        if abs(remaining) > (TOLERANCE_CENTS if moved == wrapped else WRAP_TOLERANCE_CENTS):
            shift = wrapped
    along, across = round(total.real, _DIGITS), round(total.imag, _DIGITS)
    return Tuning(along, across, round(blocks, _DIGITS), shift)


UNKNOWN = Tuning()


class Tuner:
    """Tracks the tuning of one stream of samples at the model's rate, or returns a fixed tuning."""

    def __init__(
        self,
        rate_hz: int,
        bins_per_semitone: int,
        tuning_hz: float | None = None,
        first_sample: int = 0,
        required_from: int = 0,
        tuning: Tuning = UNKNOWN,
    ) -> None:
        """Create a tuner.

        Args:
            tuning_hz: fixed frequency of A4; None to estimate it.
            first_sample: index of the first sample that will be written.
            required_from: first sample at which the tuning is required: at least BLOCK - 1 after
                ``first_sample``, unless both are 0.
            tuning: estimate at ``required_from``.
        """
        self._bin_hz = rate_hz / _BINS
        self._bins = bins_per_semitone
        self._hz = tuning_hz or CONCERT_HZ
        self._fixed: Tuning | None = None
        if tuning_hz is not None:
            octaves = math.log2(tuning_hz / CONCERT_HZ)
            self._fixed = Tuning(shift=round(12 * bins_per_semitone * octaves))
        self._first = self._boundary = required_from - required_from % BLOCK
        self._skip_samples = self._boundary - first_sample
        self._audio = np.zeros(0, np.float32)  # since the last boundary
        self._estimates = {self._boundary: tuning}

    def write(self, samples: NDArray[np.float32]) -> None:
        """Process the next samples."""
        if self._fixed is not None:
            return
        skipped = min(self._skip_samples, len(samples))
        self._skip_samples -= skipped
        audio = np.concatenate([self._audio, samples[skipped:]])
        complete = len(audio) - len(audio) % BLOCK
        for start in range(0, complete, BLOCK):
            tuning = self._estimates[self._boundary]
            vector = self._vector(audio[start : start + BLOCK])
            if vector is not None:
                tuning = add_block(tuning, vector, self._bins)
            self._boundary += BLOCK
            self._estimates[self._boundary] = tuning
            self._estimates.pop(self._boundary - _REMEMBERED * BLOCK, None)
        self._audio = audio[complete:]

    def at(self, sample: int) -> Tuning:
        """Return the estimate at the last block boundary up to ``sample``. Its shift applies to the
        window that ends before ``sample``. Write all earlier samples first."""
        return self._fixed or self._estimates[max(self._first, sample - sample % BLOCK)]

    def offset_cents(self, end: int) -> float:
        """Return the filters' offset in cents, relative to A4 = 440 Hz or the fixed tuning, for a
        window that ends before the sample ``end``."""
        reference_cents = 1200 * math.log2(self._hz / CONCERT_HZ)
        return 100 / self._bins * self.at(end).shift - reference_cents

    def _vector(self, block: NDArray[np.float32]) -> complex | None:
        """Return the block's vector: short if few peaks are steady, None if no peak is steady."""
        first, stop = int(_LOWEST_HZ / self._bin_hz), int(_HIGHEST_HZ / self._bin_hz) + 1
        spans = np.lib.stride_tricks.sliding_window_view(block, _SPAN)[::_STEP] * _WINDOW
        heights = np.abs(np.fft.rfft(spans, _BINS))[:, first - 1 : stop + 1]
        total, weights = 0j, 0.0
        (before, _), *rest = (_peaks(height, first, self._bin_hz) for height in heights)
        for cents, peaks in rest:
            if len(before) and len(cents):
                steady = np.abs(cents[:, None] - before).min(axis=1) < _STEADY_CENTS
                total += complex(np.exp(2j * np.pi / 100 * cents[steady]) @ peaks[steady])
            weights += float(peaks.sum())
            before = cents
        return total / weights if total else None


def _peaks(
    height: NDArray[np.float64], first: int, bin_hz: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the highest peaks of a spectrum, in cents above A4 = 440 Hz, and their amplitudes.
    height: amplitudes of the bins from ``first - 1`` on."""
    inner = height[1:-1]
    peaks = np.flatnonzero((inner > height[:-2]) & (inner >= height[2:]) & (inner > _SILENT))
    if len(peaks):
        peaks = peaks[inner[peaks] > _FAINT * inner[peaks].max()]
        peaks = peaks[np.argsort(-inner[peaks], kind="stable")[:_PEAKS]]
    left, centre, right = (np.log(height[peaks + step] + 1e-12) for step in range(3))
    vertex = 0.5 * (left - right) / np.minimum(left - 2 * centre + right, -1e-9)
    hz = (first + peaks + vertex) * bin_hz
    return 1200 * np.log2(hz / CONCERT_HZ), inner[peaks]
