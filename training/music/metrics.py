"""Metrics of transcriptions for frames and for notes."""

import mir_eval
import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import average_precision_score

from model.config import INSTRUMENTS
from model.instruments import UNKNOWN
from service.notes.events import Note
from training.arrays import F64, I64
from training.music.notes import Notes, notes_of_rows

FIGURES = ("frame_ap", "frame_f1", "onset_f1", "onset_offset_f1")
VELOCITY_FIGURE = "onset_velocity_f1"  # only if the labels have velocities
INSTRUMENT_FIGURE = "instrument_accuracy"  # only if labels and network have instruments
DELAY_FIGURES = ("note_on_delay_ms_p50", "note_on_delay_ms_p95")
"""Delays of the note_on events. Only transcriptions with ``needed_s`` have these figures."""
_DELAY = "time from the labelled onset to the newest sample processed before the note_on: "
DEFINITIONS = {
    "frame_ap": "average precision of the frame probabilities, pooled over all frames and pitches",
    "frame_f1": "F1 of the frames that the detected notes cover (not of thresholded probabilities)",
    "onset_f1": "F1 of notes with the same pitch and an onset within 50 ms (mir_eval)",
    "onset_offset_f1": "like onset_f1, and offsets match within 50 ms or 20 % of the duration",
    VELOCITY_FIGURE: "like onset_f1, and scaled velocities match within 10 % (mir_eval)",
    INSTRUMENT_FIGURE: "fraction of correct instruments among matched notes with known instruments",
    DELAY_FIGURES[0]: f"{_DELAY}median over the matched notes",
    DELAY_FIGURES[1]: f"{_DELAY}95th percentile over the matched notes",
}
ONSET_TOLERANCE_S = 0.05


def estimated_notes(notes: list[Note]) -> Notes:
    """Convert the service's notes to arrays."""
    numbers = {name: number for number, name in enumerate(INSTRUMENTS)}
    rows = [
        (n.onset_s, n.offset_s, n.pitch, n.velocity, numbers.get(n.instrument or "", UNKNOWN))
        for n in notes
    ]
    return notes_of_rows(np.array(rows).reshape(-1, 5))


def frame_average_precision(probabilities: NDArray, roll: NDArray) -> float:
    """Return the average precision, pooled over all elements, as in the paper. ``roll`` has the
    labels of ``probabilities``, in the same shape. Returns NaN if no label is true."""
    if not roll.any():
        return float("nan")
    return float(average_precision_score(roll.ravel(), probabilities.ravel()))


def velocity_f1(reference: Notes, estimated: Notes) -> float:
    """Return mir_eval's F1 of notes that match by pitch, onset and velocity."""
    if not len(reference) or not len(estimated):  # mir_eval would warn
        return 0.0
    notes = *_mir(reference), reference.velocity, *_mir(estimated), estimated.velocity
    compare = mir_eval.transcription_velocity.precision_recall_f1_overlap
    return float(compare(*notes, onset_tolerance=ONSET_TOLERANCE_S, offset_ratio=None)[2])


def note_on_delays(reference: Notes, matched: I64, needed_s: F64) -> dict[str, float]:
    """Return DELAY_FIGURES, or an empty dict if no note is matched.

    Args:
        matched: see ``matched_onsets``.
        needed_s: seconds of audio that were processed before the note_on of each estimated note.
    """
    if not len(matched):
        return {}
    delays_ms = 1000 * (needed_s[matched[:, 1]] - reference.onset[matched[:, 0]])
    return dict(zip(DELAY_FIGURES, np.percentile(delays_ms, [50, 95]).tolist(), strict=True))


def matched_onsets(reference: Notes, estimated: Notes, offsets: bool = False) -> I64:
    """Match notes by pitch and onset, and also by offset if ``offsets`` is true. Return the pairs,
    [n, 2], of indexes of a reference note and an estimated note."""
    if not len(reference) or not len(estimated):
        return np.zeros((0, 2), np.int64)
    pairs = mir_eval.transcription.match_notes(
        *(*_mir(reference), *_mir(estimated)),
        onset_tolerance=ONSET_TOLERANCE_S,
        offset_ratio=0.2 if offsets else None,
    )
    return np.array(pairs, np.int64).reshape(-1, 2)


def _mir(notes: Notes) -> tuple[NDArray, NDArray]:
    ends = np.maximum(notes.offset, notes.onset + 1e-3)  # mir_eval rejects notes of zero length
    return np.stack([notes.onset, ends], axis=1), mir_eval.util.midi_to_hz(notes.pitch)


def confusion(reference: Notes, estimated: Notes, matched: I64) -> I64:
    """Return the number of matched notes, [classes, classes], for each labelled instrument (rows)
    and predicted instrument (columns). Ignores pairs in which either instrument is unknown.
    ``matched``: see ``matched_onsets``."""
    out = np.zeros((len(INSTRUMENTS), len(INSTRUMENTS)), np.int64)
    played, predicted = reference.instrument[matched[:, 0]], estimated.instrument[matched[:, 1]]
    known = (played != UNKNOWN) & (predicted != UNKNOWN)
    np.add.at(out, (played[known], predicted[known]), 1)
    return out


def recording_metrics(
    reference: Notes, estimated: Notes, matched: I64, probabilities: NDArray, frame_s: float
) -> dict[str, float]:
    """Return the FIGURES of a recording, without frame_ap if no labelled note sounds. Adds
    VELOCITY_FIGURE if the labels have velocities, and INSTRUMENT_FIGURE if both instruments of a
    matched pair are known.

    Args:
        matched: see ``matched_onsets``.
        probabilities: frame probabilities, (frames, PITCHES).
        frame_s: seconds from one frame to the next.
    """
    roll = reference.roll(len(probabilities), frame_s)
    figures = {"frame_ap": frame_average_precision(probabilities, roll)} if roll.any() else {}
    tracked = estimated.roll(len(roll), frame_s)
    with_offsets = matched_onsets(reference, estimated, offsets=True)
    note_count = max(1, len(reference) + len(estimated))
    figures |= {
        "frame_f1": 2 * int((tracked & roll).sum()) / max(1, int(tracked.sum()) + int(roll.sum())),
        "onset_f1": 2 * len(matched) / note_count,
        "onset_offset_f1": 2 * len(with_offsets) / note_count,
    }
    if len(np.unique(reference.velocity)) > 1:  # equal if the labels have no velocities
        figures[VELOCITY_FIGURE] = velocity_f1(reference, estimated)
    counts = confusion(reference, estimated, matched)
    if counts.any():
        figures[INSTRUMENT_FIGURE] = float(counts.trace() / counts.sum())
    return figures
