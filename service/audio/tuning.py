"""The tuning of a performance from its spectral peaks.

A peak counts if it stays where it was in the spectrum before: glides, vibrato and noise do not. So
singers are hardly followed, which suits them: alone they keep no pitch, and their listeners name
the nearest one. See ``service.notes.tuning`` for what becomes of the peaks.
"""

import math

import numpy as np
from numpy.typing import NDArray

from service.notes.tuning import CONCERT_HZ, UNKNOWN, Tuning, fixed_shift

BLOCK = 4096  # samples at the model's rate from one look to the next; 372 ms at 11,025 Hz

_SPAN = 2048  # samples of a spectrum
_STEP = 1024  # from one to the next
_BINS = 4096  # of a spectrum's transform
_LOWEST_HZ, _HIGHEST_HZ = 150.0, 2500.0
_PEAKS = 12  # of each spectrum, the highest
_FAINT = 10 ** (-30 / 20)  # relative to the highest
_SILENT = 1e-4  # amplitude of a sine
_STEADY_CENTS = 8.0  # that a peak may move between two spectra: others are glides and noise
_REMEMBERED = 2048  # boundaries, 13 min: more than the segments of a recording under way


class TuningFollower:
    """Follows the tuning of one stream of samples at the model's rate."""

    def __init__(
        self,
        rate_hz: int,
        bins_per_semitone: int,
        first_sample: int = 0,
        known_at: int = 0,
        tuning: Tuning = UNKNOWN,
    ) -> None:
        """Args:
        first_sample: index in the performance of the first sample written.
        known_at: the first sample at which the tuning is asked for, at least BLOCK - 1 after
            first_sample unless both are 0.
        tuning: what is known there.
        """
        boundary = known_at - known_at % BLOCK
        self._spectrum = _Spectrum(rate_hz)
        self._bins = bins_per_semitone
        self._unneeded = boundary - first_sample
        self._first = self._boundary = boundary
        self._audio = np.zeros(0, np.float32)  # since the last boundary
        self._known = {boundary: tuning}

    def write(self, samples: NDArray[np.float32]) -> None:
        """The next samples."""
        unneeded = min(self._unneeded, len(samples))
        self._unneeded -= unneeded
        audio = np.concatenate([self._audio, samples[unneeded:]])
        whole = len(audio) - len(audio) % BLOCK
        for start in range(0, whole, BLOCK):
            tuning = self._known[self._boundary]
            vector = self._spectrum.vector(audio[start : start + BLOCK])
            if vector is not None:
                tuning = tuning.after(vector, self._bins)
            self._boundary += BLOCK
            self._known[self._boundary] = tuning
            self._known.pop(self._boundary - _REMEMBERED * BLOCK, None)
        self._audio = audio[whole:]

    def at(self, sample: int) -> Tuning:
        """What is known at the last boundary up to this sample, or at the first boundary there is;
        all before have been written."""
        return self._known[max(self._first, sample - sample % BLOCK)]


class Tuner:
    """How the filterbank is read for one stream: fixed, or as the performance is followed."""

    def __init__(
        self,
        bins_per_semitone: int = 1,
        tuning_hz: float | None = None,
        follower: TuningFollower | None = None,
    ) -> None:
        """tuning_hz: of A4; without it and a follower, that of the network."""
        self._bin_cents = 100 / bins_per_semitone
        self._hz = tuning_hz or CONCERT_HZ
        self._fixed = fixed_shift(self._hz, bins_per_semitone)
        self._follower = follower

    def write(self, samples: NDArray[np.float32]) -> None:
        """The next samples."""
        if self._follower is not None:
            self._follower.write(samples)

    def shift(self, end: int) -> int:
        """Of the window that ends before this sample."""
        return self._fixed if self._follower is None else self._follower.at(end).shift

    def raised_cents(self, end: int) -> float:
        """By how much that window's pitches lie above A4 = 440 Hz, or at
        ``tuning_hz``."""
        return self._bin_cents * self.shift(end) - 1200 * math.log2(self._hz / CONCERT_HZ)

    def tuning(self, sample: int) -> Tuning:
        """What is known of the performance at this sample."""
        return UNKNOWN if self._follower is None else self._follower.at(sample)


class _Spectrum:
    """The peaks of a block."""

    def __init__(self, rate_hz: int) -> None:
        self._window = np.hanning(_SPAN).astype(np.float32) * np.float32(4 / _SPAN)
        self._bin_hz = rate_hz / _BINS
        self._first = int(_LOWEST_HZ / self._bin_hz)
        self._stop = int(_HIGHEST_HZ / self._bin_hz) + 1

    def vector(self, block: NDArray[np.float32]) -> complex | None:
        """The block's vector, short if few of its peaks are steady; None if none is."""
        spans = np.lib.stride_tricks.sliding_window_view(block, _SPAN)[::_STEP] * self._window
        height = np.abs(np.fft.rfft(spans, _BINS))[:, self._first - 1 : self._stop + 1]
        total, weights = 0j, 0.0
        (before, _), *rest = map(self._peaks, height)
        for cents, peaks in rest:
            if len(before) and len(cents):
                steady = np.abs(cents[:, None] - before).min(axis=1) < _STEADY_CENTS
                total += complex(np.exp(2j * np.pi / 100 * cents[steady]) @ peaks[steady])
            weights += float(peaks.sum())
            before = cents
        return total / weights if total else None

    def _peaks(self, height: NDArray[np.float64]) -> tuple[NDArray[np.float64], ...]:
        """Cents above concert pitch, and amplitudes, of the highest peaks."""
        inner = height[1:-1]
        at = np.flatnonzero((inner > height[:-2]) & (inner >= height[2:]) & (inner > _SILENT))
        if len(at):
            at = at[inner[at] > _FAINT * inner[at].max()]
            at = at[np.argsort(-inner[at], kind="stable")[:_PEAKS]]
        left, peak, right = (np.log(height[at + step] + 1e-12) for step in range(3))
        vertex = 0.5 * (left - right) / np.minimum(left - 2 * peak + right, -1e-9)
        hz = (self._first + at + vertex) * self._bin_hz
        return 1200 * np.log2(hz / CONCERT_HZ), inner[at]
