"""The key of a performance, by the profiles of Krumhansl and Kessler (1982)."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

MAJOR = (6.35, 2.23, 3.48, 2.33, 4.38, 4.09, 2.52, 5.19, 2.39, 3.66, 2.29, 2.88)
MINOR = (6.33, 2.68, 3.52, 5.38, 2.60, 3.53, 2.54, 4.75, 3.98, 2.69, 3.34, 3.17)
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
