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
from training.arrays import F32, F64
from training.evaluation.truth import Truth, known_f1, known_frame_f1, truth_of
from training.music.families import Passage, validation_passages
from training.music.metrics import estimated_notes, matched_onsets
from training.music.notes import Notes
from training.music.synth.config import SynthConfig
from training.music.transcribe import transcribe_array

STREAM = StreamOptions(lookahead_ms=200.0, block_frames=8)  # how passages are heard
SEED = 11  # of the passages, other than those that training is validated on


@dataclass(frozen=True)
class Piece:
    """A passage as a network hears it."""

    probabilities: NDArray[np.float16]  # [heads, frames, PITCHES]
    truth: Truth

    def found(self, heads: tuple[str, ...], settings: TrackerSettings) -> Notes:
        return estimated_notes(
            listened(settings, self.probabilities, self.truth.frame_s, heads).notes
        )

    def score(self, heads: tuple[str, ...], settings: TrackerSettings) -> float:
        """The mean of onset F1, frame F1 and, if the ends are exact, onset + offset F1."""
        found = self.found(heads, settings)
        figures = [known_f1(self.truth, found), known_frame_f1(self.truth, found)]
        if self.truth.exact:
            figures.append(known_f1(self.truth, found, offsets=True))
        return float(np.mean(figures))


class Pieces:
    """The families with notes, as a network hears them."""

    def __init__(
        self, transcriber: TranscriptionModel, passages: Mapping[str, list[Passage]]
    ) -> None:
        self.heads = transcriber.config.outputs
        self.families: dict[str, list[Piece]] = {}
        with LocalComputer(transcriber) as computer:
            for family, some in passages.items():
                pieces = [
                    Piece(heard(computer, passage.audio, passage.sample_rate), truth)
                    for passage, truth in zip(some, map(truth_of, some), strict=True)
                    if len(truth.notes)
                ]
                if pieces:
                    self.families[family] = pieces

    def scores(self, settings: TrackerSettings, families: Sequence[str] = ()) -> dict[str, float]:
        """The mean score of the pieces of each family, or of these."""
        return {
            family: float(np.mean([piece.score(self.heads, settings) for piece in pieces]))
            for family, pieces in self.families.items()
            if not families or family in families
        }

    def objective(self, settings: TrackerSettings, families: Sequence[str] = ()) -> float:
        """The mean over the families, or over these."""
        return float(np.mean(list(self.scores(settings, families).values())))

    def onset_errors_s(self, settings: TrackerSettings) -> list[F64]:
        """Delays of the found notes, in seconds, of each family."""
        families = []
        for pieces in self.families.values():
            late_s = []
            for piece in pieces:
                written, found = piece.truth.notes, piece.found(self.heads, settings)
                rows, columns = matched_onsets(written, found).T
                late_s.append(found.onset[columns] - written.onset[rows])
            families.append(np.concatenate(late_s))
        return families


def chosen_passages(synth: SynthConfig, count: int, seconds: float) -> dict[str, list[Passage]]:
    """So many passages of each family."""
    return validation_passages(synth, count, seconds, SEED)


def heard(
    computer: LocalComputer, audio: F32, rate: int, stream: StreamOptions = STREAM
) -> NDArray[np.float16]:
    """Probabilities, [heads, frames, PITCHES]."""
    return transcribe_array(audio, rate, computer, stream).probabilities.astype(np.float16)


def listened(
    settings: TrackerSettings,
    probabilities: NDArray[np.float16],
    frame_s: float,
    heads: tuple[str, ...],
) -> Score:
    """What is found in [heads, frames, PITCHES]."""
    listener, score = Listener(settings, frame_s, heads), Score()
    score.add(listener.push(0, probabilities.astype(np.float32)))
    score.add(listener.finish(probabilities.shape[1]))
    return score
