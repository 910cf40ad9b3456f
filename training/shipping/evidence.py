"""Passages on which settings of the note tracker are scored: rendered passages and real recordings.

The real recordings of each set, sorted by name, are assigned alternately to two halves. A change of
settings must suit both halves and the rendered passages, because settings that are chosen on a few
recordings alone would overfit.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import soxr
from numpy.typing import NDArray

from model.config import SAMPLE_RATE
from model.transcriber import TranscriptionModel
from service.engine.local import LocalEngine
from service.notes.event_detector import EventDetector
from service.notes.note_collector import NoteCollector
from service.notes.tracker_settings import TrackerSettings
from service.protocol.options import StreamOptions
from training.evaluation.truth import Truth, labelled_f1, labelled_frame_f1, truth_of
from training.music.families import Passage
from training.music.metrics import estimated_notes
from training.music.notes import FRAME_S, Notes
from training.music.recordings import LabelError, Recording, read_audio, read_collection
from training.music.transcribe import transcribe_array

STREAM = StreamOptions(lookahead_ms=200.0, block_frames=8)  # options of every prediction
SETS = {
    "maps": "piano",
    "omaps": "piano",
    "bach_violin": "bowed",
    "guitar": "plucked",
    "voice": "voice",
    "harmonica": "reeds and flutes",
}
"""Family of each set of real recordings, by the name of its folder."""
LABEL_SHIFT_S = {"maps": 0.010}  # added to the labels of a set
MAX_RECORDING_S = 75.0  # longer recordings are truncated


@dataclass(frozen=True)
class PredictedPassage:
    """A passage with the network's predictions."""

    passage: Passage
    truth: Truth
    probabilities: NDArray[np.float16]  # [heads, frames, PITCHES]
    heads: tuple[str, ...]

    def detect(self, settings: TrackerSettings) -> NoteCollector:
        return detect_notes(settings, self.probabilities, self.heads)

    def detected_notes(self, settings: TrackerSettings) -> Notes:
        return estimated_notes(self.detect(settings).notes)

    def score(self, settings: TrackerSettings) -> float:
        """Return the mean of onset F1, frame F1 and, if all labels are certain, the F1 of onsets
        and offsets."""
        notes = self.detected_notes(settings)
        figures = [labelled_f1(self.truth, notes), labelled_frame_f1(self.truth, notes)]
        if self.truth.exact:
            figures.append(labelled_f1(self.truth, notes, offsets=True))
        return float(np.mean(figures))


PredictedPassages = dict[str, list[PredictedPassage]]  # by family; passages with notes only


def predict_passages(
    transcriber: TranscriptionModel, passages: Mapping[str, Sequence[Passage]]
) -> PredictedPassages:
    """Run the network once on every passage that has notes."""
    families: PredictedPassages = {}
    heads = transcriber.config.outputs
    with LocalEngine(transcriber) as engine:
        for family, of_family in passages.items():
            for passage in of_family:
                if not len((truth := truth_of(passage)).notes):
                    continue
                transcription = transcribe_array(passage.audio, SAMPLE_RATE, engine, STREAM)
                probabilities = transcription.probabilities.astype(np.float16)
                predicted = PredictedPassage(passage, truth, probabilities, heads)
                families.setdefault(family, []).append(predicted)
    return families


def detect_notes(
    settings: TrackerSettings, probabilities: NDArray, heads: tuple[str, ...]
) -> NoteCollector:
    """Detect notes in probabilities, [heads, frames, PITCHES]."""
    detector, notes = EventDetector(settings, FRAME_S, heads), NoteCollector()
    notes.add(detector.push(0, probabilities.astype(np.float32)))
    notes.add(detector.finish(probabilities.shape[1]))
    return notes


def recorded_passages(folder: Path) -> tuple[dict[str, list[Passage]], dict[str, list[Passage]]]:
    """Read both halves of the real recordings of a folder, by family. The folder has a sub-folder
    for at least one of SETS. Raises LabelError or AudioError for files that cannot be read, and
    ValueError if the folder has none of the sets."""
    halves: tuple[dict[str, list[Passage]], dict[str, list[Passage]]] = ({}, {})
    for name, family in SETS.items():
        if not (folder / name).is_dir():
            continue
        collection = read_collection(folder / name)
        for reason in collection.failures.values():
            raise LabelError(reason)
        for number, recording in enumerate(collection.recordings):
            halves[number % 2].setdefault(family, []).append(_passage(recording, name))
    if not halves[0]:
        raise ValueError(f"{folder} has no sub-folder named {' or '.join(SETS)}")
    return halves


def _passage(recording: Recording, set_name: str) -> Passage:
    samples, rate = read_audio(recording.audio)
    audio = soxr.resample(samples[: int(MAX_RECORDING_S * rate)], rate, SAMPLE_RATE)
    notes = recording.notes.shifted(LABEL_SHIFT_S.get(set_name, 0.0))
    end_s = len(audio) / SAMPLE_RATE
    notes = notes.where(notes.onset < end_s)
    notes = notes.ending(np.minimum(notes.offset, end_s))
    return Passage(recording.name, audio, notes, np.zeros((0, 4)))


@dataclass(frozen=True)
class Evidence:
    """Rendered passages and halves of the real recordings, by family."""

    rendered: PredictedPassages
    halves: tuple[PredictedPassages, ...] = ()

    def scores(self, settings: TrackerSettings, family: str) -> list[float]:
        """Return the family's mean score in each group that has passages of it."""
        groups = [group[family] for group in (self.rendered, *self.halves) if family in group]
        return [float(np.mean([p.score(settings) for p in group])) for group in groups]


def weighted_mean(scores: Sequence[float]) -> float:
    """Return the mean of two values: the first score, and the mean of the others. Thus rendered
    passages, which come first, count as much as all real recordings."""
    rendered, *real = scores
    return (rendered + float(np.mean(real))) / 2 if real else rendered
