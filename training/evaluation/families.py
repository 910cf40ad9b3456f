"""Measures the accuracy of notes, instruments and pedal on the validation passages of every family.

The service's stream transcribes the passages.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from model.config import INSTRUMENTS, SAMPLE_RATE
from service.engine.local import LocalEngine
from service.engine.runners import EngineModel
from service.notes.events import Note, PedalPress
from service.protocol.options import StreamOptions
from training.arrays import F64, I64
from training.evaluation.truth import labelled_figures, truth_of
from training.music.families import Passage
from training.music.metrics import FIGURES, confusion, estimated_notes, matched_onsets
from training.music.transcribe import transcribe_array

PEDAL_FRAME_S = 0.05
HALF_PEDAL = 0.5  # minimum depth of a pedal that is down


class FamilyCounts:
    """Counts over several passages: instruments of matched notes, and frames of the pedal."""

    def __init__(self) -> None:
        self.confusion = np.zeros((len(INSTRUMENTS), len(INSTRUMENTS)), np.int64)
        # Number of pedal frames, by labelled and detected state (up, down).
        self._pedal = np.zeros((2, 2), np.int64)

    def add(self, passage: Passage, notes: list[Note], pedal: Sequence[PedalPress]) -> None:
        """Count the notes and pedal presses that were detected in a passage."""
        estimated = estimated_notes(notes)
        matched = matched_onsets(passage.notes, estimated)
        self.confusion += confusion(passage.notes, estimated, matched)
        if passage.pedal is not None:
            frames = int(len(passage.audio) / SAMPLE_RATE / PEDAL_FRAME_S)
            presses = np.array([(press.onset_s, press.offset_s) for press in pedal])
            label = _down(passage.pedal[passage.pedal[:, 2] >= HALF_PEDAL, :2], frames)
            np.add.at(self._pedal, (label, _down(presses.reshape(-1, 2), frames)), 1)

    @property
    def accuracy(self) -> float:
        """Share of right instruments among matched notes whose instruments are known."""
        return float(self.confusion.trace() / max(1, self.confusion.sum()))

    @property
    def by_class(self) -> dict[str, float]:
        """Share of right instruments, as in ``accuracy``, by labelled class."""
        right, total = self.confusion.diagonal(), self.confusion.sum(axis=1)
        return {INSTRUMENTS[n]: float(right[n] / total[n]) for n in np.flatnonzero(total)}

    @property
    def pedal_f1(self) -> tuple[float, float]:
        """F1 of frames with the pedal up, and with the pedal down, in frames of PEDAL_FRAME_S."""
        both = self._pedal.sum(axis=0) + self._pedal.sum(axis=1)
        up, down = 2 * self._pedal.diagonal() / np.maximum(1, both)
        return float(up), float(down)


def _down(presses: F64, frames: int) -> I64:
    """Return [frames], 1 where the pedal is down in the middle of the frame. presses: [n, 2], in
    seconds."""
    middle = (np.arange(frames) + 0.5) * PEDAL_FRAME_S
    starts, ends = presses[:, :1], presses[:, 1:]
    return np.asarray(((starts <= middle) & (middle < ends)).any(axis=0), np.int64)


def evaluate_families(
    transcriber: EngineModel, options: StreamOptions, passages: Mapping[str, Sequence[Passage]]
) -> dict[str, Any]:
    """Transcribe the passages of every family. Return figures as plain Python values.

    Returns:
        ``families``: for each family the means over its passages of ``frame_f1``, ``onset_f1`` and
        ``onset_offset_f1``, and ``instruments``, the share of right instruments among matched notes
        whose instruments are known. A family without notes has ``false_notes_min``, false notes per
        minute.
        ``classes``: the share of right instruments by labelled class, over all families.
        ``pedal_f1``: F1 of frames of 50 ms with the pedal down, over all families.
    """
    families: dict[str, dict[str, float]] = {}
    overall = FamilyCounts()
    with LocalEngine(transcriber) as engine:
        for family, of_family in passages.items():
            counts, scores, note_count, seconds = FamilyCounts(), [], 0, 0.0
            for passage in of_family:
                transcription = transcribe_array(passage.audio, SAMPLE_RATE, engine, options)
                truth, notes = truth_of(passage), estimated_notes(transcription.notes)
                note_count += len(notes)
                seconds += len(passage.audio) / SAMPLE_RATE
                if len(truth.notes):
                    scores.append(labelled_figures(truth, notes))
                for count in (counts, overall):
                    count.add(passage, transcription.notes, transcription.pedal)
            figures = {"false_notes_min": 60 * note_count / max(seconds, 1e-9)}
            if scores:
                figures = dict(zip(FIGURES[1:], np.mean(scores, axis=0).tolist(), strict=True))
            if counts.confusion.any():
                figures["instruments"] = counts.accuracy
            families[family] = figures
            text = ", ".join(f"{name} {value:.3f}" for name, value in figures.items())
            print(f"{family:20}{text}", flush=True)
    return {"families": families, "classes": overall.by_class, "pedal_f1": overall.pedal_f1[1]}
