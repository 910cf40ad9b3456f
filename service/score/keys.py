"""The key of a performance, by the profiles of Albrecht and Shanahan (2013)."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

MAJOR = (0.238, 0.006, 0.111, 0.006, 0.137, 0.094, 0.016, 0.214, 0.009, 0.080, 0.008, 0.081)
MINOR = (0.220, 0.006, 0.104, 0.123, 0.019, 0.103, 0.012, 0.214, 0.062, 0.022, 0.061, 0.052)
NAMES = ("C", "Db", "D", "Eb", "E", "F", "F#", "G", "Ab", "A", "Bb", "B")
_LONGEST_S = 2.0  # that counts of a note: a held bass is no stronger a sign than a chord


@dataclass(frozen=True, slots=True)
class Key:
    """``fifths``: sharps of the signature, or flats if negative, -6 to 6."""

    fifths: int
    minor: bool

    @property
    def name(self) -> str:
        """As in MIDI's key signature, such as "Eb" or "F#m"."""
        major = NAMES[self.fifths * 7 % 12]
        if not self.minor:
            return major
        sharps = {"Db": "C#", "Ab": "G#", "Eb": "D#"}
        tonic = NAMES[(self.fifths * 7 + 9) % 12]
        return (sharps.get(tonic, tonic) if self.fifths > 0 else tonic) + "m"


def key_of(pitch: NDArray[np.int64], length_s: NDArray[np.float64]) -> Key:
    """The key whose profile the pitch classes, weighted by their lengths, correlate with best."""
    weight = np.bincount(pitch % 12, np.minimum(length_s, _LONGEST_S), 12)
    if not weight.any():
        return Key(0, minor=False)
    candidates = [
        (float(np.corrcoef(np.roll(profile, tonic), weight)[0, 1]), tonic, minor)
        for minor, profile in ((False, MAJOR), (True, MINOR))
        for tonic in range(12)
    ]
    _, tonic, minor = max(candidates)
    major = (tonic + 3) % 12 if minor else tonic
    return Key((major * 7 + 6) % 12 - 6, minor)
