"""What labels of real recordings leave open, to be masked in the loss: rows of
``Rendered.unknown``, [n, 4] of begin and end in seconds, pitch (-1: all), and what is unknown.
"""

import numpy as np
from numpy.typing import NDArray

from model.config import PITCHES
from training.arrays import F64
from training.music.aligner import RELEASE_S, Aligned
from training.music.notes import FRAME_UNKNOWN, ONSET_UNKNOWN, Notes, next_strokes

BOTH = FRAME_UNKNOWN | ONSET_UNKNOWN
ALL_PITCHES = -1

DOUBT = 0.25  # notes of lower confidence are trained neither as notes nor as silence
NEAR_S = 0.1  # masked on either side of a doubtful onset
HELD = 0.6
"""Fraction of the written length for which a key is certainly held: detached playing releases it
about then, and long notes fade."""
RINGING_RELEASE_S = 4.0  # in place of RELEASE_S if the pedal is often down
RINGING = 0.12
"""Mean frame probability RELEASE_S after written ends that means the pedal is often down."""
ORNAMENT_PITCHES = 2  # semitones around a note with an ornament sign that may be played
UNWRITTEN, UNWRITTEN_WITH_ORNAMENTS = 0.8, 0.6
"""Onset probabilities above which an unwritten onset may have been played. Without ornaments,
nearly all of the model's false notes stay below the first, and most below the second."""
SUPPORT = 0.6  # smallest fraction of nearby notes that are heard; below it, the alignment is lost
SUPPORT_S = 1.5  # time before and after that counts as nearby
EDGE_S = 0.06
"""Approximate edges are masked for this long on either side: half as much again as their error."""
NEIGHBOURS = (-1, 0, 1)
"""Semitones around an approximate edge that are masked: a singer slides into a note."""


def rows(begin_s: F64, end_s: F64 | float, pitch: NDArray | int, what: int) -> F64:
    """Rows of ``Rendered.unknown``."""
    columns = np.broadcast_arrays(begin_s, end_s, pitch, what)
    return np.stack(columns, axis=1).astype(np.float64)


def edges(notes: Notes) -> F64:
    """What approximate labels leave open."""
    parts = []
    for step in NEIGHBOURS:
        pitch = np.clip(notes.pitch + step, 0, PITCHES - 1)
        parts.append(rows(notes.onset - EDGE_S, notes.onset + EDGE_S, pitch, BOTH))
        parts.append(rows(notes.offset - EDGE_S, notes.offset + EDGE_S, pitch, FRAME_UNKNOWN))
    return np.concatenate(parts)


def doubts_of(aligned: Aligned, signs_s: F64, ornamented: bool) -> F64:
    """What a score leaves open. signs_s: [k], score times of ornament signs that the score does not
    play out; ornamented: whether the player adds notes."""
    release_s = RINGING_RELEASE_S if aligned.ringing >= RINGING else RELEASE_S
    least = UNWRITTEN_WITH_ORNAMENTS if ornamented else UNWRITTEN
    at_s, pitch, _ = aligned.unwritten[aligned.unwritten[:, 2] >= least].T
    notes = aligned.notes
    unsure = notes.where(aligned.confidence < DOUBT)
    # From the earliest key release until the sound is gone or the pitch begins again.
    again_s = np.append(notes.onset, np.inf)[next_strokes(notes.pitch, notes.onset)]
    let_go_s = notes.onset + HELD * (notes.offset - notes.onset)
    gone_s = np.minimum(notes.offset + release_s, again_s)
    before_s, last_s = unsure.onset - NEAR_S, unsure.offset + release_s
    return np.concatenate(
        [
            rows(before_s, unsure.onset + NEAR_S, unsure.pitch, ONSET_UNKNOWN),
            rows(before_s, last_s, unsure.pitch, FRAME_UNKNOWN),
            rows(let_go_s, gone_s, notes.pitch, FRAME_UNKNOWN),
            *(_ornament(notes, sign_s, release_s) for sign_s in aligned.audio_time(signs_s)),
            rows(at_s - NEAR_S, at_s + release_s, pitch, BOTH),
            _astray(aligned),
        ]
    )


def _ornament(notes: Notes, at_s: float, release_s: float) -> F64:
    """Pitches near the notes at a sign, for the duration of the notes."""
    notes = notes.where(np.abs(notes.onset - at_s) < NEAR_S)
    steps = np.arange(-ORNAMENT_PITCHES, ORNAMENT_PITCHES + 1)
    pitch = np.clip(notes.pitch[:, None] + steps, 0, PITCHES - 1).ravel()
    begin_s = np.repeat(notes.onset - 2 * NEAR_S, len(steps))
    return rows(begin_s, np.repeat(notes.offset + release_s, len(steps)), pitch, BOTH)


def _astray(aligned: Aligned) -> F64:
    """Parts in which the model hears few of the written notes."""
    onset_s = aligned.onset
    heard = np.concatenate([[0], np.cumsum(aligned.heard)])
    first = np.searchsorted(onset_s, onset_s - SUPPORT_S)
    last = np.searchsorted(onset_s, onset_s + SUPPORT_S, side="right")
    poor = onset_s[(heard[last] - heard[first]) / (last - first) < SUPPORT]
    return rows(poor - SUPPORT_S, poor + SUPPORT_S, ALL_PITCHES, BOTH)
