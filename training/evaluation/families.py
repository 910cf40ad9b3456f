"""Notes, instruments and pedal on the validation passages of every family, through the service's
own stream."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from model.config import INSTRUMENTS
from service.engine.local import LocalComputer
from service.engine.runners import EngineModel
from service.notes.events import Note, PedalPress
from service.protocol.options import StreamOptions
from training.arrays import F64, I64
from training.evaluation.truth import labelled_f1, labelled_frame_f1, truth_of
from training.music.families import Passage
from training.music.metrics import FIGURES, confusion, estimated_notes, matched_onsets
from training.music.transcribe import transcribe_array

PEDAL_FRAME_S = 0.05
HALF_PEDAL = 0.5  # smallest depth that counts as down


class FamilyCounts:
    """What is right over some passages."""

    def __init__(self) -> None:
        self.confusion = np.zeros((len(INSTRUMENTS), len(INSTRUMENTS)), np.int64)
        self._pedal = np.zeros((2, 2), np.int64)  # frames with it up or down: labelled, heard

    def add(self, passage: Passage, notes: list[Note], pedal: Sequence[PedalPress]) -> None:
        """What was heard of a passage."""
        found = estimated_notes(notes)
        self.confusion += confusion(passage.notes, found, matched_onsets(passage.notes, found))
        if passage.pedal is not None:
            frames = int(len(passage.audio) / passage.sample_rate / PEDAL_FRAME_S)
            presses = np.array([(press.onset_s, press.offset_s) for press in pedal])
            label = _down(passage.pedal[passage.pedal[:, 2] >= HALF_PEDAL, :2], frames)
            np.add.at(self._pedal, (label, _down(presses.reshape(-1, 2), frames)), 1)

    @property
    def accuracy(self) -> float:
        """Of the instruments of the notes found."""
        return float(self.confusion.trace() / max(1, self.confusion.sum()))

    @property
    def by_class(self) -> dict[str, float]:
        """The accuracy for the notes of each class."""
        right, all_of = self.confusion.diagonal(), self.confusion.sum(axis=1)
        return {INSTRUMENTS[n]: float(right[n] / all_of[n]) for n in np.flatnonzero(all_of)}

    @property
    def pedal_f1(self) -> tuple[float, float]:
        """In frames of PEDAL_FRAME_S: of the pedal that is up, and that is down."""
        both = self._pedal.sum(axis=0) + self._pedal.sum(axis=1)
        up, down = 2 * self._pedal.diagonal() / np.maximum(1, both)
        return float(up), float(down)


def _down(presses: F64, frames: int) -> I64:
    """[frames]: 1 if the pedal is down in the middle of a frame; presses: [n, 2] in s."""
    middle = (np.arange(frames) + 0.5) * PEDAL_FRAME_S
    begins, ends = presses[:, :1], presses[:, 1:]
    return np.asarray(((begins <= middle) & (middle < ends)).any(axis=0), np.int64)


def evaluate_families(
    transcriber: EngineModel, options: StreamOptions, passages: Mapping[str, Sequence[Passage]]
) -> dict[str, Any]:
    """Plain values. Of each of ``families`` means over its passages: ``frame_f1``, ``onset_f1``,
    ``onset_offset_f1``, and the accuracy of the ``instruments`` of the notes found; of sounds
    without notes ``false_notes_min``, in a minute. Of all, the accuracy by ``classes`` and
    ``pedal_f1`` in frames of 50 ms."""
    families: dict[str, dict[str, float]] = {}
    whole = FamilyCounts()
    with LocalComputer(transcriber) as computer:
        for family, some in passages.items():
            counts, scores, false, seconds = FamilyCounts(), [], 0, 0.0
            for passage in some:
                heard = transcribe_array(passage.audio, passage.sample_rate, computer, options)
                truth, found = truth_of(passage), estimated_notes(heard.notes)
                false += len(found)
                seconds += len(passage.audio) / passage.sample_rate
                if len(truth.notes):
                    ends = labelled_f1(truth, found, offsets=True)
                    scores.append(
                        (labelled_frame_f1(truth, found), labelled_f1(truth, found), ends)
                    )
                for one in (counts, whole):
                    one.add(passage, heard.notes, heard.pedal)
            figures = {"false_notes_min": 60 * false / max(seconds, 1e-9)}
            if scores:
                figures = dict(zip(FIGURES[1:], np.mean(scores, axis=0).tolist(), strict=True))
            if counts.confusion.any():
                figures["instruments"] = counts.accuracy
            families[family] = figures
            said = ", ".join(f"{name} {value:.3f}" for name, value in figures.items())
            print(f"{family:20}{said}", flush=True)
    return {"families": families, "classes": whole.by_class, "pedal_f1": whole.pedal_f1[1]}
