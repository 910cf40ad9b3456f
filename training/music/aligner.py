"""Aligns a score with a recording. The result is notes with times and confidences.

First, dynamic time warping compares piano rolls of the written notes with the model's frame and
onset probabilities. (librosa's version would add a dependency on numba for one recursion.) Then
chords, i.e. notes at the same score time, move towards the detected onsets of their notes, and with
nearby chords. Finally, each note whose onset is detected moves to the likeliest onset of its
pitch near its chord.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from model.config import PITCHES
from service.engine.local import LocalEngine
from service.notes.frames import onset_shift, peaks
from training.arrays import F32, F64, I64, Bools
from training.music.notes import (
    FRAME_S,
    Notes,
    nearest,
    next_of_same_pitch,
    next_onsets,
    notes_of,
)
from training.music.recordings import LabelError, read_audio, read_midi
from training.music.transcribe import transcribe_array

TOLERANCE_S = 0.06  # maximum distance of a note from its chord
ROUGH_TOLERANCES_S = (3 * TOLERANCE_S, 2 * TOLERANCE_S)  # tolerances while chords still move
MIN_ONSET_PROBABILITY = 0.2  # of a detected note, weighted by distance from its chord
NEIGHBOURS_S = 1.0  # distance within which chords influence each other
STIFFNESS = 0.5  # weight of nearby chords, relative to a note with onset probability 1
SPREAD_S = 0.02  # mean distance of nearby notes from their chords at which confidence falls to 1/e
MAX_UNDETECTED_CONFIDENCE = 0.5  # of a note that only its neighbours locate
PEAK_LEAD_S = 0.004
"""Time by which the model's peaks precede attacks. In recordings of a grand piano, the median peak
is 5 ms before the steepest rise of energy. In rendered audio, it is 1 ms before the onset."""
RELEASE_S = 1.0  # maximum time for which a note rings after its written offset


@dataclass(frozen=True)
class Aligned:
    """A score's notes at recording times, sorted by onset. All fields can be stored as arrays."""

    onset: F64  # [n], seconds
    offset: F64
    pitch: NDArray[np.int16]
    confidence: F64
    """[n], 0 to 1. For a detected note, at least its onset probability, weighted by the distance
    from its chord. For other notes, at most MAX_UNDETECTED_CONFIDENCE."""
    detected: Bools  # [n], true if the model detects the onset
    score_s: F64  # [k], times of all chords in the score
    audio_s: F64  # [k], times of the same chords in the recording
    unwritten: F64  # [m, 3]: time in s, pitch and probability of detected onsets not in the score
    ringing: float | F64  # mean frame probability RELEASE_S after the written offsets

    @property
    def notes(self) -> Notes:
        """The notes, with velocity 0 (unknown)."""
        return notes_of(self.onset, self.offset, self.pitch)


def mapped(times_s: F64, score_s: F64, audio_s: F64) -> F64:
    """Map score times to recording times. Interpolates linearly between pairs of times, ``score_s``
    and ``audio_s``, which increase. Extrapolates with the mean tempo."""
    span = float(score_s[-1] - score_s[0])
    pace = float(audio_s[-1] - audio_s[0]) / span if span else 1.0
    outside = times_s - np.clip(times_s, score_s[0], score_s[-1])
    return np.asarray(np.interp(times_s, score_s, audio_s) + outside * pace)


def align(score: Notes, sounding: F32, onset: F32) -> Aligned:
    """Return the score's notes at their times in the recording.

    Args:
        score: notes at the times of the score.
        sounding: frame probabilities, (frames, PITCHES).
        onset: onset probabilities, (frames, PITCHES).
    """
    first = np.concatenate([[True], np.diff(score.onset) > 0.005])
    chord = np.cumsum(first) - 1
    written_s = score.onset[first]
    chord_s = mapped(written_s, *warp(score, sounding, onset))
    for width_s in ROUGH_TOLERANCES_S:
        found_s, strength = _peaks(score.pitch, chord_s[chord], onset, width_s)
        chord_s = _moved(chord_s, chord, found_s, strength)
    found_s, strength = _peaks(score.pitch, chord_s[chord], onset, TOLERANCE_S)
    detected = strength >= MIN_ONSET_PROBABILITY
    onset_s = np.where(detected, found_s, chord_s[chord])
    support, spread_s = _around(chord_s[chord], onset_s - chord_s[chord], detected)
    placed = MAX_UNDETECTED_CONFIDENCE * support * np.exp(-np.square(spread_s / SPREAD_S))
    confidence = np.clip(np.where(detected, np.maximum(strength, placed), placed), 0, 1)
    # Offsets are as written, but after the onset and before the next note of the pitch.
    offset_s = np.maximum(mapped(score.offset, written_s, chord_s), onset_s + 0.04)
    again_s = next_onsets(score.pitch, onset_s)
    offset_s = np.maximum(np.minimum(offset_s, again_s), onset_s)
    order = np.lexsort((score.pitch, onset_s))
    begin_s, end_s = np.maximum(0, onset_s)[order], np.maximum(0, offset_s)[order]
    notes = notes_of(begin_s, end_s, score.pitch[order])
    return Aligned(
        notes.onset,
        notes.offset,
        notes.pitch,
        confidence[order],
        detected[order],
        written_s,
        chord_s,
        _unwritten(notes, onset),
        _ringing(notes, sounding),
    )


def _peaks(
    pitch: NDArray[np.int16], expected_s: F64, onset: F32, width_s: float
) -> tuple[F64, F64]:
    """Return for each note the time of the likeliest onset of its pitch within ``width_s`` of
    ``expected_s``, and the onset's weighted probability. The weight is a raised cosine of the
    distance. If several notes of a pitch are near an onset, only the nearest may use it."""
    reach = int(np.ceil(width_s / FRAME_S))
    expected_s = expected_s - PEAK_LEAD_S  # time of the model's peak
    at = np.rint(expected_s / FRAME_S).astype(int)[:, None] + np.arange(-reach, reach + 1)
    inside = (at >= 1) & (at < len(onset) - 1)
    at = np.clip(at, 1, len(onset) - 2)
    distance_s = at * FRAME_S - expected_s[:, None]
    # A note may use onsets up to half-way to its neighbours of the same pitch.
    again = next_of_same_pitch(pitch, expected_s)
    latest_s = (expected_s + np.append(expected_s, np.inf)[again]) / 2
    earliest_s = np.full(len(pitch) + 1, -np.inf)  # the last element is unused
    earliest_s[again] = latest_s
    inside &= (at * FRAME_S >= earliest_s[:-1, None]) & (at * FRAME_S <= latest_s[:, None])
    weight = np.cos(np.pi / 2 * np.clip(distance_s / (width_s + FRAME_S), -1, 1)) ** 2
    likely = np.where(inside, onset[at, pitch[:, None]] * weight, 0)
    rows, best = np.arange(len(pitch)), likely.argmax(axis=1)
    peak = at[rows, best]
    cells = zip(peak.tolist(), pitch.tolist(), strict=True)
    shift = np.array([onset_shift(onset[frame - 1 : frame + 2, key]) for frame, key in cells])
    found_s = (peak + shift) * FRAME_S + PEAK_LEAD_S
    return found_s, likely[rows, best].astype(float)


def _moved(chord_s: F64, chord: I64, found_s: F64, strength: F64) -> F64:
    """Return the times of chords, moved towards their notes' onsets and with nearby chords."""
    weight = np.where(strength >= MIN_ONSET_PROBABILITY, strength, 0)
    shift = found_s - chord_s[chord]
    own = np.bincount(chord, weight, len(chord_s)).astype(float)
    own_shift = np.bincount(chord, weight * shift, len(chord_s)) / np.maximum(own, 1e-9)
    near = zip(*_nearby(chord_s), strict=True)
    around = np.array([_weighted_median(own_shift[a:b], own[a:b]) for a, b in near])
    moved = chord_s + (own * own_shift + STIFFNESS * around) / (own + STIFFNESS)
    return np.maximum.accumulate(moved)  # chords stay in order


def _nearby(times_s: F64) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return for each time the first index within NEIGHBOURS_S and the index after the last."""
    start = np.searchsorted(times_s, times_s - NEIGHBOURS_S)
    return start, np.searchsorted(times_s, times_s + NEIGHBOURS_S, side="right")


def _weighted_median(values: F64, weights: F64) -> float:
    order = np.argsort(values)
    total = np.cumsum(weights[order])
    return float(values[order][np.searchsorted(total, total[-1] / 2)]) if total[-1] else 0.0


def _around(times_s: F64, distance_s: F64, detected: Bools) -> tuple[F64, F64]:
    """Return for each note the fraction of detected notes among all notes within NEIGHBOURS_S, and
    the mean distance, in seconds, of these detected notes from their chords."""
    start, stop = _nearby(times_s)
    sums = np.cumsum([detected, np.abs(distance_s) * detected], axis=1)
    sums = np.pad(sums, ((0, 0), (1, 0)))
    count, distance = sums[:, stop] - sums[:, start]
    return count / (stop - start), distance / np.maximum(1, count)


def align_files(audio: Path, score: Path, engine: LocalEngine) -> Aligned:
    """Align a MIDI file with a recording (see ``align``). Raises AudioError for unreadable audio,
    and LabelError for a score that is unreadable or empty."""
    notes = read_midi(score)
    if not len(notes):
        raise LabelError(f"{score} has no notes")
    transcription = transcribe_array(*read_audio(audio), engine, heads=("frame", "onset"))
    return align(notes, *transcription.probabilities)


def _unwritten(notes: Notes, onset: F32) -> F64:
    """Return time in s, pitch and probability, [n, 3], of detected onsets that the score lacks.
    These are peaks of at least MIN_ONSET_PROBABILITY, more than 2 TOLERANCE_S from every note of
    the pitch."""
    frame, pitch = peaks(onset, 1, MIN_ONSET_PROBABILITY)[1:-1].nonzero()
    times_s = np.asarray((frame + 1) * FRAME_S, np.float64)
    near = nearest(notes.onset, notes.pitch, times_s, pitch, 2 * TOLERANCE_S) >= 0
    return np.stack([times_s, pitch, onset[frame + 1, pitch]], axis=1)[~near]


def _ringing(notes: Notes, sounding: F32) -> float:
    """Return the mean frame probability RELEASE_S after the offsets of notes. Ignores notes whose
    pitch starts again within 1.5 RELEASE_S of the offset."""
    again_s = next_onsets(notes.pitch, notes.onset)
    frame = np.rint((notes.offset + RELEASE_S) / FRAME_S).astype(int)
    alone = (again_s > notes.offset + 1.5 * RELEASE_S) & (frame < len(sounding))
    rung = sounding[frame[alone], notes.pitch[alone]]
    return float(rung.mean()) if len(rung) else 0.0


CELLS = 40_000_000  # maximum number of cells of the cost table, 5 bytes each
STEP_S = 0.04  # duration of a slice of the rolls; longer if the table would be too large
MARGIN_S = 1.0  # silence around the score, because a recording may start earlier and stop later
ONSET_WEIGHT = 2.0  # weight of onsets relative to frames
STALL_COST = 0.25  # extra cost of a step in which only the score or only the recording advances
SILENT = 0.3  # norm below which a slice is not scaled up to norm 1


def warp(score: Notes, sounding: F32, onset: F32) -> tuple[F64, F64]:
    """Return increasing score times and the recording times of the same notes, to about STEP_S.
    For the arguments see ``align``. The score may have any tempo."""
    length_s = len(sounding) * FRAME_S
    # The written tempo is arbitrary: scale the score to the time between the clear onsets.
    struck_s = np.flatnonzero(onset.max(axis=1) > 0.5) * FRAME_S
    span_s = float(struck_s[-1] - struck_s[0]) if len(struck_s) > 1 else length_s
    pace = max(1e-3, span_s) / max(1e-3, float(score.onset[-1] - score.onset[0]))
    step_s = max(STEP_S, float(np.sqrt(length_s * (span_s + 2 * MARGIN_S) / CELLS)))
    begin_s = MARGIN_S - score.onset[0] * pace
    played = score.replaced(
        onset=score.onset * pace + begin_s, offset=score.offset * pace + begin_s
    )
    slices = int((span_s + 2 * MARGIN_S) / step_s) + 1
    begins = np.zeros((slices, PITCHES), np.float32)
    begins[np.minimum((played.onset / step_s).astype(int), slices - 1), played.pitch] = 1
    sounds = np.maximum(played.roll(slices, step_s), begins).astype(np.float32)
    edges = np.arange(0, len(sounding), step_s / FRAME_S).astype(int)
    audio = _features(*(np.maximum.reduceat(roll, edges) for roll in (sounding, onset)))
    # Costs range from 0 (equal slices) to 1 (no common notes).
    path = _cheapest_path(1 - _features(sounds, begins) @ audio.T)
    # The notes of a score slice start in the first of its audio slices.
    at, first = np.unique(path[:, 0], return_index=True)
    return (at * step_s - begin_s) / pace, path[first, 1] * step_s


def _features(sounding: F32, onset: F32) -> F32:
    """Return a vector of norm 1 for each slice. In a quiet slice, frames and onsets have a smaller
    norm, and an additional component completes it, so that silent slices match each other."""
    onset = onset.copy()
    onset[1:] += 0.5 * onset[:-1]  # tolerate an onset that is one slice late
    out = np.concatenate([sounding, ONSET_WEIGHT * onset], axis=1)
    out /= np.maximum(SILENT, np.linalg.norm(out, axis=1, keepdims=True))
    silence = np.sqrt(np.maximum(0, 1 - np.square(out).sum(axis=1, keepdims=True)))
    return np.concatenate([out, silence], axis=1).astype(np.float32)


def _cheapest_path(costs: F32) -> I64:
    """Return rows and columns, [steps, 2], of the cheapest path from the first cell to the last.
    Computes the total costs for one anti-diagonal after the other."""
    rows, columns = costs.shape
    back = np.zeros((rows, columns), np.int8)  # what advanced: 0: both, 1: row, 2: column
    # Total costs of the last two anti-diagonals, by row. An extra row precedes the first.
    last, before = np.full((2, rows + 1), np.inf, np.float32)
    before[0] = 0
    for diagonal in range(rows + columns - 1):
        row = np.arange(max(0, diagonal - columns + 1), min(rows, diagonal + 1))
        arrivals = np.stack([before[row], last[row] + STALL_COST, last[row + 1] + STALL_COST])
        choice = arrivals.argmin(axis=0)
        back[row, diagonal - row] = choice
        before, last = last, np.full(rows + 1, np.inf, np.float32)
        last[row + 1] = arrivals[choice, np.arange(len(row))] + costs[row, diagonal - row]
    path = [(rows - 1, columns - 1)]
    while path[-1] != (0, 0):
        row_at, column_at = path[-1]
        step = back[row_at, column_at]
        path.append((row_at - (step != 2), column_at - (step != 1)))
    return np.array(path[::-1])
