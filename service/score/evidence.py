"""Where in a beat a chord is likely to fall, from how it sounds.

Long, low, full chords are beats rather than what lies between them. A softmax over places in the
beat says how likely; its weights were fitted to performances whose beats are known
(training/RESULTS.md).
"""

from typing import NamedTuple

import numpy as np

from service.score.beats import F64, I64

CHORD_S = 0.045  # notes that begin within this time are one chord
MIN_CHORDS = 8  # fewer show no beat
PLACES = {  # in a beat, by its subdivision; each class of places has one row below
    2: ((0.0,), (0.5,), (0.25, 0.75)),
    3: ((0.0,), (1 / 3,), (2 / 3,), (1 / 6, 0.5, 5 / 6)),
}
TYPICAL_S = 0.6  # of a beat
# Rows: downbeat, other beats, the classes of PLACES after the first, elsewhere. Columns: constant,
# log(beat / TYPICAL_S), its square, and the features.
WEIGHTS = {
    2: (
        (-0.59, -1.77, 0.84, 0.22, 0.20, 0.81, -0.04, 0.23),
        (0.58, -1.33, 0.98, 0.27, -0.06, 0.37, 0.08, 0.25),
        (0.77, -0.39, 0.60, 0.22, 0.01, -0.20, 0.03, 0.28),
        (0.65, 1.08, -0.75, -0.37, -0.07, -0.60, 0.26, -0.07),
        (-1.41, 2.41, -1.67, -0.33, -0.08, -0.37, -0.34, -0.68),
    ),
    3: (
        (-0.38, -0.95, 0.80, 0.09, -0.05, 0.76, 0.29, 0.32),
        (0.65, -0.78, -0.08, 0.21, -0.03, 0.52, 0.18, 0.41),
        (1.05, -0.50, -0.95, -0.10, -0.02, -0.29, 0.05, 0.45),
        (1.12, 0.10, -0.03, 0.33, 0.07, -0.14, 0.07, -0.13),
        (0.68, 1.43, 0.11, -0.40, 0.09, -0.66, 0.32, 0.00),
        (-3.12, 0.70, 0.15, -0.12, -0.07, -0.18, -0.92, -1.05),
    ),
}
_LONGEST_S = 1.5
_AROUND = 24  # chords before and after, to which one is compared


class Chords(NamedTuple):
    """Chords in order: ``time_s`` [chords], ``features`` [chords, 5], relative to those around."""

    time_s: F64
    features: F64


def chord_numbers(onset_s: F64) -> I64:
    """The number of each note's chord, from 0; onsets ascend."""
    numbers = np.zeros(len(onset_s), np.int64)
    first = number = 0
    for place in range(1, len(onset_s)):
        if onset_s[place] - onset_s[first] > CHORD_S:
            first, number = place, number + 1
        numbers[place] = number
    return numbers


def chords_of(notes: F64) -> Chords | None:
    """None if there are fewer than ``MIN_CHORDS``.

    Args:
        notes: [notes, 4] onset and offset in s, MIDI pitch, velocity; onsets ascend.
    """
    onset_s, offset_s, pitch, velocity = notes.T
    number = chord_numbers(onset_s)
    count = np.bincount(number).astype(float)
    if (chords := len(count)) < MIN_CHORDS:
        return None
    time_s = np.bincount(number, onset_s * velocity) / np.bincount(number, velocity)
    gap = np.log(np.minimum(np.diff(time_s, append=time_s[-1] + 1), _LONGEST_S) + 0.05)
    lowest, longest = np.full(chords, np.inf), np.zeros(chords)
    np.minimum.at(lowest, number, pitch)
    np.maximum.at(longest, number, np.minimum(offset_s - onset_s, 2.0))
    begin, end = np.searchsorted(time_s, time_s - 1.2), np.searchsorted(time_s, time_s + 1.2)
    is_bass = [
        low <= np.quantile(lowest[a:b], 0.2) for low, a, b in zip(lowest, begin, end, strict=True)
    ]
    last_gap = np.append(0.0, gap[:-1])
    features = np.log(count), np.array(is_bass, float), np.log(longest + 0.05), gap, last_gap
    return Chords(time_s, np.stack([relative(feature) for feature in features], axis=1))


def class_logs(features: F64, subdivision: int, beat_s: float) -> F64:
    """Log probabilities [chords, classes] of a chord's place in beats of a length."""
    weights = np.array(WEIGHTS[subdivision])
    slow = np.log(beat_s / TYPICAL_S)
    logits = weights[:, :3] @ (1.0, slow, slow * slow) + features @ weights[:, 3:].T
    logits -= logits.max(1, keepdims=True)
    return logits - np.log(np.exp(logits).sum(1, keepdims=True))


def relative(values: F64) -> F64:
    """Deviations from the mean of the values around, in their standard deviations."""
    box = np.ones(2 * _AROUND + 1) / (2 * _AROUND + 1)
    padded = np.pad(values, _AROUND, mode="reflect" if len(values) > _AROUND else "edge")
    mean = np.convolve(padded, box, "valid")
    variance = np.convolve(padded**2, box, "valid") - mean**2
    return np.clip((values - mean) / np.sqrt(np.maximum(variance, 1e-3) + 0.01), -3, 3)
