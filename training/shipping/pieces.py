"""Validation passages by family, as a network hears them: for choosing how notes are found."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from model.transcriber import TranscriptionModel
from service.engine.local import LocalComputer
from service.notes.listener import Listener
from service.notes.score import Score
from service.notes.tracker_settings import TrackerSettings
from service.protocol.options import StreamOptions
from training.evaluation.truth import Truth, known_f1, known_frame_f1, truth_of
from training.music.families import Passage, validation_passages
from training.music.metrics import estimated_notes
from training.music.notes import Notes
from training.music.synth.config import SynthConfig
from training.music.transcribe import transcribe_array

STREAM = StreamOptions(lookahead_ms=200.0, block_frames=8)  # how passages are heard
SEED = 11  # of the passages, other than those that training is validated on


@dataclass(frozen=True)
class Piece:
    """A passage as a network hears it."""

    passage: Passage
    truth: Truth
    probabilities: NDArray[np.float16]  # [heads, frames, PITCHES]
    heads: tuple[str, ...]

    def listened(self, settings: TrackerSettings) -> Score:
        return listened(settings, self.probabilities, self.truth.frame_s, self.heads)

    def found(self, settings: TrackerSettings) -> Notes:
        return estimated_notes(self.listened(settings).notes)

    def score(self, settings: TrackerSettings) -> float:
        """The mean of onset F1, frame F1 and, if the ends are exact, onset + offset F1."""
        found = self.found(settings)
        figures = [known_f1(self.truth, found), known_frame_f1(self.truth, found)]
        if self.truth.exact:
            figures.append(known_f1(self.truth, found, offsets=True))
        return float(np.mean(figures))


Pieces = dict[str, list[Piece]]  # by family, of those with notes


def heard(transcriber: TranscriptionModel, passages: Mapping[str, Sequence[Passage]]) -> Pieces:
    families: Pieces = {}
    heads = transcriber.config.outputs
    with LocalComputer(transcriber) as computer:
        for family, some in passages.items():
            for one in some:
                if len((truth := truth_of(one)).notes):
                    found = transcribe_array(one.audio, one.sample_rate, computer, STREAM)
                    piece = Piece(one, truth, found.probabilities.astype(np.float16), heads)
                    families.setdefault(family, []).append(piece)
    return families


def chosen_passages(synth: SynthConfig, count: int, seconds: float) -> dict[str, list[Passage]]:
    """This many passages of each family."""
    return validation_passages(synth, count, seconds, SEED)


def listened(
    settings: TrackerSettings, probabilities: NDArray, frame_s: float, heads: tuple[str, ...]
) -> Score:
    """What is found in [heads, frames, PITCHES]."""
    listener, score = Listener(settings, frame_s, heads), Score()
    score.add(listener.push(0, probabilities.astype(np.float32)))
    score.add(listener.finish(probabilities.shape[1]))
    return score
