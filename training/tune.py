"""Choose the note tracker's thresholds on synthesised validation pieces.

The pieces are played by the held-out instruments from validation scores; recordings that the
model is evaluated on never enter. The network runs once per look-ahead; then the thresholds are
improved one at a time until none improves the objective.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from model.config import HOP
from model.transcriber import Transcriber
from service.engine import Engine
from service.events import Note, NoteEvent
from service.options import StreamOptions
from service.tracker import NoteTracker, TrackerSettings
from service.transcribe import transcribe_array
from training.evaluate import estimated_notes
from training.metrics import NoteList, frame_f1, note_f1, note_list
from training.synth.config import SynthConfig
from training.synth.validation import validation_pieces

logger = logging.getLogger(__name__)

LOOKAHEADS_MS = (100.0, 200.0)
CANDIDATES: dict[str, Sequence[float | int]] = {
    "onset_threshold": [0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.55, 0.6],
    "frame_on_threshold": [0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5],
    "frame_off_threshold": [0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4],
    "frame_start_threshold": [0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0],
    "frame_start_frames": [3, 4, 6, 9, 12],
    "release_frames": [2, 3, 4, 6],
    "min_note_frames": [3, 4, 5, 7],
}
ROUNDS = 2


class HeldOutPieces:
    """Probabilities of the validation pieces, to be tracked with many settings."""

    def __init__(
        self, transcriber: Transcriber, synth: SynthConfig, pieces: int, seconds: float
    ) -> None:
        self.frame_s = HOP / transcriber.config.sample_rate
        self.heads = tuple(h for h in transcriber.config.heads if h in ("frame", "onset"))
        self.pieces: list[tuple[NDArray[np.float32], NoteList]] = []
        rate = transcriber.config.sample_rate
        with Engine(transcriber) as engine:
            for piece in validation_pieces(synth, pieces, seconds, seed=11):
                for lookahead in LOOKAHEADS_MS:
                    result = transcribe_array(
                        piece.audio,
                        rate,
                        engine,
                        StreamOptions(lookahead_ms=lookahead, block_frames=8),
                    )
                    rows = [result.frame_probabilities]
                    if result.onset_probabilities is not None:
                        rows.append(result.onset_probabilities)
                    self.pieces.append((np.stack(rows), note_list(piece.notes)))

    def objective(self, settings: TrackerSettings) -> float:
        """Mean over pieces of onset F1 plus half of frame F1 and of onset+offset F1."""
        total = 0.0
        for probabilities, reference in self.pieces:
            estimated = estimated_notes(list(self._notes(settings, probabilities)))
            frames = probabilities.shape[1]
            rolls = (notes.roll(frames, self.frame_s) for notes in (estimated, reference))
            total += note_f1(reference, estimated, offsets=False)
            total += 0.5 * frame_f1(*rolls) + 0.5 * note_f1(reference, estimated, offsets=True)
        return total / len(self.pieces)

    def _notes(
        self, settings: TrackerSettings, probabilities: NDArray[np.float32]
    ) -> Iterator[Note]:
        tracker = NoteTracker(settings, self.frame_s, self.heads)
        frames = probabilities.shape[1]
        begun: dict[int, NoteEvent] = {}
        for event in [*tracker.push(0, probabilities), *tracker.finish(frames)]:
            if event.kind == "note_on":
                begun[event.note_id] = event
            else:
                yield Note.of(begun.pop(event.note_id), event)


def tune(pieces: HeldOutPieces, start: TrackerSettings | None = None) -> TrackerSettings:
    """Coordinate search over CANDIDATES; combinations that make no sense are passed over."""
    best = start or TrackerSettings()
    score = pieces.objective(best)
    for _ in range(ROUNDS):
        before = score
        for name, values in CANDIDATES.items():
            for value in values:
                try:
                    candidate = replace(best, **{name: value})  # type: ignore[arg-type]
                except ValueError:
                    continue
                if candidate == best:
                    continue
                found = pieces.objective(candidate)
                if found > score:
                    best, score = candidate, found
            logger.info("%s %s: %.4f", name, getattr(best, name), score)
        if score == before:
            break
    return best
