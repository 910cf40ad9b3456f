"""What a score does not tell of a recording, to be left out of the loss.

Rows are as in ``Rendered.unknown``: begin and end in seconds, pitch (-1: all), and what is unknown.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from model.config import PITCHES
from training.music.scored.time_map import TimeMap
from training.music.synth.labels import FRAME_UNKNOWN, ONSET_UNKNOWN
from training.music.synth.scores import Notes

DOUBT = 0.25
"""Notes of less confidence are taught neither as played nor as silence."""
NEAR_S = 0.1
"""Around an onset in doubt."""
HELD = 0.6
"""Share of the written length for which a key is certainly held: detached playing lets go about
there, and the sound of long notes fades."""
RELEASE_S = 1.0
"""After a written end, for legato, damper and room."""
RINGING_RELEASE_S = 4.0
"""The same where the pedal is down much of the time."""
RINGING = 0.12
"""Mean probability of sounding RELEASE_S after the written ends, from which on it is."""
ORNAMENT_PITCHES = 2
"""Semitones around a note with an ornament sign that may be struck."""
UNWRITTEN, UNWRITTEN_WITH_ORNAMENTS = 0.8, 0.6
"""Onset probabilities from which on an onset that is not written may yet be played. Where nobody
ornaments, nearly all of the model's false notes stay below the first, and most below the second."""
SUPPORT = 0.6
"""Least share of the notes around that are heard; with less, the alignment has gone astray."""
SUPPORT_S = 1.5
"""Around is so far before and after."""

BOTH = FRAME_UNKNOWN | ONSET_UNKNOWN
ALL_PITCHES = -1


@dataclass(frozen=True)
class Evidence:
    """An aligned recording.

    Attributes:
        notes: the score's, where they are played.
        confidence: [n], of each.
        heard: [n], whether the model hears it begin.
        time_map: from the score's time.
        unwritten: [m, 3], second, pitch and probability of onsets heard that are not written.
        ringing: mean probability of sounding RELEASE_S after the written ends.
    """

    notes: Notes
    confidence: NDArray[np.float64]
    heard: NDArray[np.bool_]
    time_map: TimeMap
    unwritten: NDArray[np.float64]
    ringing: float

    @property
    def release_s(self) -> float:
        """How long after its written end a note may sound."""
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
        left_out_s: [k, 2], stretches of the recording that are not to be learnt from.
    """
    unwritten = UNWRITTEN_WITH_ORNAMENTS if ornamented else UNWRITTEN
    parts = [
        _doubtful(evidence),
        _releases(evidence),
        *(_ornament(evidence, at_s) for at_s in evidence.time_map(signs_s)),
        _unwritten(evidence, unwritten),
        _astray(evidence),
        _rows(left_out_s[:, 0], left_out_s[:, 1], ALL_PITCHES, BOTH),
    ]
    return np.concatenate(parts)


def _rows(
    begin_s: NDArray[np.float64],
    end_s: NDArray[np.float64],
    pitch: NDArray | int,
    what: int,
) -> NDArray[np.float64]:
    columns = np.broadcast_arrays(begin_s, end_s, pitch, what)
    return np.stack(columns, axis=1).astype(np.float64)


def _doubtful(evidence: Evidence) -> NDArray[np.float64]:
    notes = evidence.notes.where(evidence.confidence < DOUBT)
    begin_s, end_s = notes.onset - NEAR_S, notes.offset + evidence.release_s
    onset = _rows(begin_s, notes.onset + NEAR_S, notes.pitch, ONSET_UNKNOWN)
    return np.concatenate([onset, _rows(begin_s, end_s, notes.pitch, FRAME_UNKNOWN)])


def _releases(evidence: Evidence) -> NDArray[np.float64]:
    """From where a key may be let go to where its sound has gone or its pitch begins again."""
    notes = evidence.notes
    order = np.lexsort((notes.onset, notes.pitch))
    again_s = np.full(len(notes), np.inf)
    same = np.diff(notes.pitch[order]) == 0
    again_s[order[:-1][same]] = notes.onset[order][1:][same]
    begin_s = notes.onset + HELD * (notes.offset - notes.onset)
    end_s = np.minimum(notes.offset + evidence.release_s, again_s)
    return _rows(begin_s, end_s, notes.pitch, FRAME_UNKNOWN)


def _ornament(evidence: Evidence, at_s: float) -> NDArray[np.float64]:
    """Neighbours in pitch of the notes at a sign, as long as those last."""
    notes = evidence.notes.where(np.abs(evidence.notes.onset - at_s) < NEAR_S)
    steps = np.arange(-ORNAMENT_PITCHES, ORNAMENT_PITCHES + 1)
    pitch = np.clip(notes.pitch[:, None] + steps, 0, PITCHES - 1).ravel()
    begin_s = np.repeat(notes.onset - 2 * NEAR_S, len(steps))
    end_s = np.repeat(notes.offset + evidence.release_s, len(steps))
    return _rows(begin_s, end_s, pitch, BOTH)


def _unwritten(evidence: Evidence, probability: float) -> NDArray[np.float64]:
    time_s, pitch, _ = evidence.unwritten[evidence.unwritten[:, 2] >= probability].T
    return _rows(time_s - NEAR_S, time_s + evidence.release_s, pitch, BOTH)


def _astray(evidence: Evidence) -> NDArray[np.float64]:
    """Stretches in which the model hears few of the written notes."""
    onset_s = evidence.notes.onset
    heard = np.concatenate([[0], np.cumsum(evidence.heard)])
    first = np.searchsorted(onset_s, onset_s - SUPPORT_S)
    last = np.searchsorted(onset_s, onset_s + SUPPORT_S, side="right")
    poor = onset_s[(heard[last] - heard[first]) / (last - first) < SUPPORT]
    return _rows(poor - SUPPORT_S, poor + SUPPORT_S, ALL_PITCHES, BOTH)
