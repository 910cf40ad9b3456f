"""Real recordings with scores, for judging the note tracker's settings.

Scores do not determine key releases, so only onsets count. Where a score leaves open whether a note
begins, found and missed notes do not count.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from model.config import HOP, PITCHES
from model.transcriber import TranscriptionModel
from service.engine.engine import Engine
from service.notes.tracker_settings import TrackerSettings
from training.music.metrics import NoteList, matched_onsets
from training.music.notes import ONSET_UNKNOWN
from training.music.recordings import PCM_SCALE
from training.music.scored.corpus import ScoredRecording, load_recordings
from training.music.synth.acoustics.augment import Surroundings, augment, load_surroundings
from training.music.synth.config import SynthConfig
from training.music.synth.validation import validation_pieces
from training.shipping.tracking import lookahead_probabilities, note_heads, onset_errors_s, tracked


@dataclass(frozen=True)
class Truth:
    """The onsets that a score determines: those of the written notes, [n] each."""

    onset_s: NDArray[np.float64]
    pitch: NDArray[np.int16]
    unknown: NDArray[np.bool_]
    """(frames, PITCHES), where the score leaves open whether a note begins."""
    frame_s: float

    def knows(self, onset_s: NDArray[np.float64], pitch: NDArray) -> NDArray[np.bool_]:
        """Whether the score determines each of these onsets."""
        frame = np.clip(np.rint(onset_s / self.frame_s).astype(int), 0, len(self.unknown) - 1)
        return ~self.unknown[frame, pitch]

    @property
    def notes(self) -> NoteList:
        """The written notes, without lengths and velocities."""
        pitch = self.pitch.astype(np.int64)
        return NoteList(self.onset_s, self.onset_s, pitch, np.zeros_like(pitch))


def known_truth(
    onset_s: NDArray[np.float64], pitch: NDArray[np.int16], length: int, rate: int
) -> Truth:
    """The truth of so many samples in which no other note begins."""
    return Truth(onset_s, pitch, np.zeros((length // HOP + 1, PITCHES), bool), HOP / rate)


class RecordedPieces:
    """Probabilities of recordings (see ``tune.Timed``)."""

    def __init__(
        self,
        transcriber: TranscriptionModel,
        recordings: Sequence[ScoredRecording],
        seconds: float,
        surroundings: Surroundings | None = None,
    ) -> None:
        """Args:
        seconds: of each recording, from its beginning.
        surroundings: of a second copy of each; None for none.
        """
        self.frame_s = HOP / transcriber.config.sample_rate
        self.heads, rows = note_heads(transcriber.config.heads)
        self.pieces: list[tuple[NDArray[np.float32], Truth]] = []
        rate = transcriber.config.sample_rate
        with Engine(transcriber) as engine:
            rng = np.random.default_rng(0)
            for recording in recordings:
                for audio in copies(recording, int(seconds * rate), rate, surroundings, rng):
                    for probabilities in lookahead_probabilities(engine, audio, rows):
                        truth = truth_of(recording, probabilities.shape[1], self.frame_s)
                        self.pieces.append((probabilities, truth))

    def _tracked(self, settings: TrackerSettings) -> Iterator[tuple[Truth, NoteList]]:
        for probabilities, truth in self.pieces:
            yield truth, tracked(settings, probabilities, self.frame_s, self.heads)

    def objective(self, settings: TrackerSettings) -> float:
        """Mean onset F1 over pieces."""
        return float(np.mean([known_onset_f1(*pair) for pair in self._tracked(settings)]))

    def onset_errors_s(self, settings: TrackerSettings) -> NDArray[np.float64]:
        """As in ``tune.Timed``."""
        pairs = self._tracked(settings)
        return np.concatenate([onset_errors_s(truth.notes, notes) for truth, notes in pairs])


def copies(
    recording: ScoredRecording,
    length: int,
    rate: int,
    surroundings: Surroundings | None,
    rng: np.random.Generator,
) -> Iterator[NDArray[np.float32]]:
    """The first ``length`` samples as they are, then, given ``surroundings``, in another room and
    through other microphones: most recordings with scores are close ones of one piano."""
    audio = recording.audio[:length].astype(np.float32) / np.float32(PCM_SCALE)
    yield audio
    if surroundings is not None:
        yield augment(audio, rate, rng, surroundings=surroundings)


def pieces_with_truth(
    synth: SynthConfig,
    rate: int,
    pieces: int,
    seconds: float,
    seed: int,
    split: str,
    elsewhere: bool = False,
) -> Iterator[tuple[NDArray[np.float32], Truth]]:
    """Audio at the model's rate and onsets of rendered pieces and, if ``synth.real_root`` is given,
    of the recordings of a split.

    Args:
        pieces: number of rendered pieces; ``seed`` chooses them.
        seconds: length of each, and of each recording at most.
        elsewhere: each recording also in another room.
    """
    frame_s, frames = HOP / rate, int(seconds * rate) // HOP
    for piece in validation_pieces(synth, pieces, seconds, seed):
        notes, length = piece.notes, len(piece.audio)
        yield piece.audio, known_truth(notes.onset, notes.pitch, length, rate)
    if synth.real_root is None:
        return
    surroundings = load_surroundings(synth.root, rate) if elsewhere else None
    rng = np.random.default_rng(seed)
    for recording in load_recordings(synth.real_root, synth.cache, split, synth.real_left_out):
        for audio in copies(recording, HOP * frames, rate, surroundings, rng):
            yield audio, truth_of(recording, -(-len(audio) // HOP), frame_s)


def truth_of(recording: ScoredRecording, frames: int, frame_s: float) -> Truth:
    """The onsets in the first ``frames`` of a recording."""
    unknown = np.zeros((frames, PITCHES), bool)
    for begin_s, end_s, pitch, what in recording.unknown:
        if int(what) & ONSET_UNKNOWN:
            first, last = (max(0, round(second / frame_s)) for second in (begin_s, end_s))
            unknown[first:last, slice(None) if pitch < 0 else int(pitch)] = True
    inside = recording.notes.onset < frames * frame_s
    return Truth(recording.notes.onset[inside], recording.notes.pitch[inside], unknown, frame_s)


def known_onset_f1(score: Truth, notes: NoteList) -> float:
    """F1 of the onsets that the score determines; 0 if there are none and none is found."""
    written, found = matched_onsets(score.notes, notes).T
    written_known = score.knows(score.onset_s, score.pitch)
    hits = int(written_known[written].sum())
    wrong = np.ones(len(notes), bool)
    wrong[found] = False
    wrong &= score.knows(notes.onset_s, notes.pitch)
    total = int(written_known.sum()) + hits + int(wrong.sum())
    return 2 * hits / max(1, total)
