"""What a score leaves open about a recording, to be masked in the loss.

Rows are as in ``Rendered.unknown``: begin and end in seconds, pitch (-1: all), and what is unknown.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from model.config import PITCHES
from training.music.notes import FRAME_UNKNOWN, ONSET_UNKNOWN, Notes, next_strokes
from training.music.scored.coarse import TimeMap

DOUBT = 0.25
"""Notes of lower confidence are trained neither as notes nor as silence."""
NEAR_S = 0.1
"""Masked on either side of a doubtful onset."""
HELD = 0.6
"""Fraction of the written length for which a key is certainly held: detached playing releases it
about then, and long notes fade."""
RELEASE_S = 1.0
"""After a written end, for legato, damper and room."""
RINGING_RELEASE_S = 4.0
"""The same if the pedal is often down."""
RINGING = 0.12
"""Mean frame probability RELEASE_S after written ends that means the pedal is often down."""
ORNAMENT_PITCHES = 2
"""Semitones around a note with an ornament sign that may be played."""
UNWRITTEN, UNWRITTEN_WITH_ORNAMENTS = 0.8, 0.6
"""Onset probabilities above which an unwritten onset may have been played. Without ornaments,
nearly all of the model's false notes stay below the first, and most below the second."""
SUPPORT = 0.6
"""Smallest fraction of nearby notes that are heard; below it, the alignment is lost."""
SUPPORT_S = 1.5
"""Time before and after that counts as nearby."""

BOTH = FRAME_UNKNOWN | ONSET_UNKNOWN
ALL_PITCHES = -1


@dataclass(frozen=True)
class Evidence:
    """An aligned recording."""

    notes: Notes
    """The score's, at recording times."""
    confidence: NDArray[np.float64]
    heard: NDArray[np.bool_]
    """[n], whether the model hears the onset."""
    time_map: TimeMap
    unwritten: NDArray[np.float64]
    """[m, 3]: second, pitch and probability of onsets heard but not written."""
    ringing: float
    """Mean frame probability RELEASE_S after the written ends."""

    @property
    def release_s(self) -> float:
        """How long a note may sound after its written end."""
        return RINGING_RELEASE_S if self.ringing >= RINGING else RELEASE_S


def unknown(
    evidence: Evidence,
    signs_s: NDArray[np.float64],
    ornamented: bool,
    left_out_s: NDArray[np.float64],
) -> NDArray[np.float64]:
    """[n, 4]: everything that the score leaves open.

    Args:
        signs_s: [k], score times of ornament signs that the score does not play out.
        ornamented: whether the player adds notes.
        left_out_s: [k, 2], parts of the recording to leave out.
    """
    least = UNWRITTEN_WITH_ORNAMENTS if ornamented else UNWRITTEN
    at_s, pitch, _ = evidence.unwritten[evidence.unwritten[:, 2] >= least].T
    parts = [
        _doubtful(evidence),
        _releases(evidence),
        *(_ornament(evidence, sign_s) for sign_s in evidence.time_map(signs_s)),
        _rows(at_s - NEAR_S, at_s + evidence.release_s, pitch, BOTH),
        _astray(evidence),
        _rows(left_out_s[:, 0], left_out_s[:, 1], ALL_PITCHES, BOTH),
    ]
    return np.concatenate(parts)


def _rows(
    begin_s: NDArray[np.float64], end_s: NDArray[np.float64], pitch: NDArray | int, what: int
) -> NDArray[np.float64]:
    columns = np.broadcast_arrays(begin_s, end_s, pitch, what)
    return np.stack(columns, axis=1).astype(np.float64)


def _doubtful(evidence: Evidence) -> NDArray[np.float64]:
    notes = evidence.notes.where(evidence.confidence < DOUBT)
    begin_s, end_s = notes.onset - NEAR_S, notes.offset + evidence.release_s
    onset = _rows(begin_s, notes.onset + NEAR_S, notes.pitch, ONSET_UNKNOWN)
    return np.concatenate([onset, _rows(begin_s, end_s, notes.pitch, FRAME_UNKNOWN)])


def _releases(evidence: Evidence) -> NDArray[np.float64]:
    """From the earliest key release until the sound is gone or the pitch begins again."""
    notes = evidence.notes
    again_s = np.append(notes.onset, np.inf)[next_strokes(notes.pitch, notes.onset)]
    begin_s = notes.onset + HELD * (notes.offset - notes.onset)
    end_s = np.minimum(notes.offset + evidence.release_s, again_s)
    return _rows(begin_s, end_s, notes.pitch, FRAME_UNKNOWN)


def _ornament(evidence: Evidence, at_s: float) -> NDArray[np.float64]:
    """Pitches near the notes at a sign, for the duration of the notes."""
    notes = evidence.notes.where(np.abs(evidence.notes.onset - at_s) < NEAR_S)
    steps = np.arange(-ORNAMENT_PITCHES, ORNAMENT_PITCHES + 1)
    pitch = np.clip(notes.pitch[:, None] + steps, 0, PITCHES - 1).ravel()
    begin_s = np.repeat(notes.onset - 2 * NEAR_S, len(steps))
    end_s = np.repeat(notes.offset + evidence.release_s, len(steps))
    return _rows(begin_s, end_s, pitch, BOTH)


def _astray(evidence: Evidence) -> NDArray[np.float64]:
    """Parts in which the model hears few of the written notes."""
    onset_s = evidence.notes.onset
    heard = np.concatenate([[0], np.cumsum(evidence.heard)])
    first = np.searchsorted(onset_s, onset_s - SUPPORT_S)
    last = np.searchsorted(onset_s, onset_s + SUPPORT_S, side="right")
    poor = onset_s[(heard[last] - heard[first]) / (last - first) < SUPPORT]
    return _rows(poor - SUPPORT_S, poor + SUPPORT_S, ALL_PITCHES, BOTH)
