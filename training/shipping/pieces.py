"""Validation passages by family, as a network hears them: for choosing how notes are found.

What the labels of a passage leave open, onsets and frames, counts neither as right nor as wrong.
Approximate labels leave every onset open; there all notes count, since the tolerance of onsets is
wider than the error of the labels.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from model.config import HOP, PITCHES
from model.transcriber import TranscriptionModel
from service.engine.local import LocalComputer
from service.notes.listener import Listener
from service.notes.score import Score
from service.notes.tracker_settings import TrackerSettings
from service.protocol.options import StreamOptions
from service.stream.recording import transcribe_array
from training.arrays import F32, F64, Bools
from training.music.families import Passage, validation_passages
from training.music.metrics import estimated_notes, matched_onsets
from training.music.notes import FRAME_UNKNOWN, ONSET_UNKNOWN, Notes
from training.music.synth.config import SynthConfig

STREAM = StreamOptions(lookahead_ms=200.0, block_frames=8)  # how passages are heard
SEED = 11  # of the passages, other than those that training is validated on


@dataclass(frozen=True)
class Truth:
    """The notes that the labels of a passage determine."""

    notes: Notes  # as labelled
    unknown: NDArray[np.uint8]
    """(frames, PITCHES): what the labels leave open, bits of ONSET_UNKNOWN and FRAME_UNKNOWN."""
    frame_s: float

    def knows(self, onset_s: F64, pitch: NDArray) -> Bools:
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
    if len(notes) and not truth.knows(notes.onset, notes.pitch).any():
        return Truth(notes, unknown & np.uint8(FRAME_UNKNOWN), frame_s)
    return truth


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


def known_f1(truth: Truth, notes: Notes, offsets: bool = False) -> float:
    """F1 of the notes whose onsets the labels determine, if ``offsets`` by their ends as well; 0 if
    there are none and none is found."""
    written, found = matched_onsets(truth.notes, notes, offsets).T
    written_known = truth.knows(truth.notes.onset, truth.notes.pitch)
    hits = int(written_known[written].sum())
    wrong = np.ones(len(notes), bool)
    wrong[found] = False
    wrong &= truth.knows(notes.onset, notes.pitch)
    total = int(written_known.sum()) + hits + int(wrong.sum())
    return 2 * hits / max(1, total)


def known_frame_f1(truth: Truth, notes: Notes) -> float:
    """F1 of the frames that the labels determine."""
    known = truth.unknown & FRAME_UNKNOWN == 0
    shape = len(truth.unknown), truth.frame_s
    written, found = (one.roll(*shape) & known for one in (truth.notes, notes))
    return 2 * int((written & found).sum()) / max(1, int(written.sum()) + int(found.sum()))
