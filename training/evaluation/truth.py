"""Ground truth of a passage, and the accuracy of detected notes where the labels are certain.

Onsets and frames with uncertain labels count neither as right nor as wrong. If all labelled onsets
of a passage are uncertain, all of its onsets count, because no note would be left to score.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from model.config import HOP, PITCHES
from training.arrays import F64, Bools
from training.music.families import Passage
from training.music.metrics import matched_onsets
from training.music.notes import FRAME_S, FRAME_UNKNOWN, ONSET_UNKNOWN, Notes


@dataclass(frozen=True)
class Truth:
    """The labelled notes of a passage, and the frames in which the labels are uncertain."""

    notes: Notes
    unknown: NDArray[np.uint8]  # [frames, PITCHES]: bits ONSET_UNKNOWN and FRAME_UNKNOWN

    def is_labelled(self, onset_s: F64, pitch: NDArray) -> Bools:
        """For each onset, [n], return True if its label is certain."""
        frame = np.clip(np.rint(onset_s / FRAME_S).astype(int), 0, len(self.unknown) - 1)
        return np.asarray(self.unknown[frame, pitch] & ONSET_UNKNOWN == 0)

    @property
    def exact(self) -> bool:
        """True if the labels are certain everywhere, including the offsets."""
        return not self.unknown.any()


def truth_of(passage: Passage) -> Truth:
    """Return the ground truth of a passage."""
    frames = -(-len(passage.audio) // HOP)
    unknown = np.zeros((frames, PITCHES), np.uint8)
    for start_s, end_s, pitch, bits in passage.unknown:
        start, stop = (max(0, round(second / FRAME_S)) for second in (start_s, end_s))
        unknown[start:stop, slice(None) if pitch < 0 else int(pitch)] |= int(bits)
    inside = (passage.notes.onset >= 0) & (passage.notes.onset < frames * FRAME_S)
    truth = Truth(passage.notes.where(inside), unknown)
    notes = truth.notes
    if len(notes) and not truth.is_labelled(notes.onset, notes.pitch).any():
        return Truth(notes, unknown & np.uint8(FRAME_UNKNOWN))
    return truth


def labelled_f1(truth: Truth, notes: Notes, offsets: bool = False) -> float:
    """Return the F1 of notes whose onset label is certain; 0 if there are none. offsets: True if
    the offsets of notes must match as well."""
    labelled, detected = matched_onsets(truth.notes, notes, offsets).T
    certain = truth.is_labelled(truth.notes.onset, truth.notes.pitch)
    hits = int(certain[labelled].sum())
    wrong = np.ones(len(notes), bool)
    wrong[detected] = False
    wrong &= truth.is_labelled(notes.onset, notes.pitch)
    total = int(certain.sum()) + hits + int(wrong.sum())
    return 2 * hits / max(1, total)


def labelled_figures(truth: Truth, notes: Notes) -> tuple[float, float, float]:
    """Return the F1 of frames, of onsets, and of onsets with offsets (``metrics.FIGURES[1:]``)."""
    onset_offset_f1 = labelled_f1(truth, notes, offsets=True)
    return labelled_frame_f1(truth, notes), labelled_f1(truth, notes), onset_offset_f1


def labelled_frame_f1(truth: Truth, notes: Notes) -> float:
    """Return the F1 of the frames whose label is certain; 0 if no note sounds."""
    certain = truth.unknown & FRAME_UNKNOWN == 0
    frames = len(truth.unknown)
    labelled = truth.notes.roll(frames, FRAME_S) & certain
    detected = notes.roll(frames, FRAME_S) & certain
    return 2 * int((labelled & detected).sum()) / max(1, int(labelled.sum()) + int(detected.sum()))
