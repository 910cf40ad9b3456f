"""What the labels of a passage determine, and how right found notes are by them.

What labels leave open, onsets and frames, counts neither as right nor as wrong. Approximate labels
leave every onset open; there all notes count, since the tolerance of onsets is wider than the error
of the labels.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from model.config import HOP, PITCHES
from training.arrays import F64, Bools
from training.music.families import Passage
from training.music.metrics import matched_onsets
from training.music.notes import FRAME_UNKNOWN, ONSET_UNKNOWN, Notes


@dataclass(frozen=True)
class Truth:
    """The notes that the labels of a passage determine."""

    notes: Notes  # as labelled
    unknown: NDArray[np.uint8]
    """(frames, PITCHES): what the labels leave open, bits of ONSET_UNKNOWN and FRAME_UNKNOWN."""
    frame_s: float

    def is_labelled(self, onset_s: F64, pitch: NDArray) -> Bools:
        """Whether the labels determine each of these onsets."""
        frame = np.clip(np.rint(onset_s / self.frame_s).astype(int), 0, len(self.unknown) - 1)
        return np.asarray(self.unknown[frame, pitch] & ONSET_UNKNOWN == 0)

    @property
    def exact(self) -> bool:
        """Whether nothing is left open, the ends of notes included."""
        return not self.unknown.any()


def truth_of(passage: Passage) -> Truth:
    frame_s = HOP / passage.sample_rate
    frames = -(-len(passage.audio) // HOP)
    unknown = np.zeros((frames, PITCHES), np.uint8)
    for begin_s, end_s, pitch, what in passage.unknown:
        first, last = (max(0, round(second / frame_s)) for second in (begin_s, end_s))
        unknown[first:last, slice(None) if pitch < 0 else int(pitch)] |= int(what)
    inside = (passage.notes.onset >= 0) & (passage.notes.onset < frames * frame_s)
    truth = Truth(passage.notes.where(inside), unknown, frame_s)
    notes = truth.notes
    if len(notes) and not truth.is_labelled(notes.onset, notes.pitch).any():
        return Truth(notes, unknown & np.uint8(FRAME_UNKNOWN), frame_s)
    return truth


def labelled_f1(truth: Truth, notes: Notes, offsets: bool = False) -> float:
    """F1 of the notes whose onsets the labels determine, if ``offsets`` by their ends as well; 0 if
    there are none and none is found."""
    written, found = matched_onsets(truth.notes, notes, offsets).T
    written_known = truth.is_labelled(truth.notes.onset, truth.notes.pitch)
    hits = int(written_known[written].sum())
    wrong = np.ones(len(notes), bool)
    wrong[found] = False
    wrong &= truth.is_labelled(notes.onset, notes.pitch)
    total = int(written_known.sum()) + hits + int(wrong.sum())
    return 2 * hits / max(1, total)


def labelled_frame_f1(truth: Truth, notes: Notes) -> float:
    """F1 of the frames that the labels determine."""
    known = truth.unknown & FRAME_UNKNOWN == 0
    shape = len(truth.unknown), truth.frame_s
    written, found = (one.roll(*shape) & known for one in (truth.notes, notes))
    return 2 * int((written & found).sum()) / max(1, int(written.sum()) + int(found.sum()))
