"""Choose the note tracker's settings: ``python -m training.shipping.tune --model live --write``.

Uses validation scores rendered with held-out instruments and, with ``--real DIR``, the validation
split of real recordings with scores, which cause false notes that no rendering has; recordings for
evaluation are never used. The network runs once per look-ahead; then the settings are improved one
at a time along their grids, first in wide steps, until the objective no longer improves.
``--write`` stores them in the weights' card.
"""

import logging
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from model.config import HOP
from model.transcriber import TranscriptionModel
from service.engine.engine import Engine
from service.notes.tracker_settings import TrackerSettings
from training.music.metrics import NoteList, frame_f1, matched_onsets, note_f1, note_list
from training.music.scored.corpus import load_recordings
from training.music.synth.acoustics.augment import load_surroundings
from training.music.synth.config import SynthConfig
from training.music.synth.validation import validation_pieces
from training.shipping.choosing import command
from training.shipping.recorded_pieces import RecordedPieces
from training.shipping.tracking import lookahead_probabilities, note_heads, tracked

logger = logging.getLogger(__name__)

_PROBABILITIES = (0.02, *(i / 20 for i in range(1, 20)), 0.98)
# Without onset_radius_frames: as the delay of a note_on, it is not a matter of accuracy alone.
GRID: dict[str, Sequence[Any]] = {
    "onset_threshold": _PROBABILITIES,
    "restrike_threshold": (*_PROBABILITIES, None),
    "frame_on_threshold": _PROBABILITIES,
    "frame_off_threshold": _PROBABILITIES,
    "release_frames": tuple(range(1, 9)),  # more would report ends later than 0.2 s
    "min_note_frames": (2, 3, 4, 5, 6, 7, 8, 10, 12, 16),
    "frame_start_threshold": (*_PROBABILITIES, None),
    "frame_start_frames": (2, 3, 4, 6, 8, 12, 16, 24, 32),
    "offset_threshold": (*_PROBABILITIES, None),
}
WIDE_STEP = 4  # of the first pass along a grid
REACH = 2  # steps in a row that may fail before a direction is given up
ROUNDS = 4
MAX_CORRECTION = 0.4  # frames
REAL_WEIGHT = 2.0  # of onset F1 on recordings, against the objective of rendered pieces


class Pieces(Protocol):
    """Material that settings are judged on."""

    heads: tuple[str, ...]

    def objective(self, settings: TrackerSettings) -> float:
        """Higher is better."""


class Timed(Pieces, Protocol):
    """Pieces whose notes have true times."""

    frame_s: float

    def onset_errors_s(self, settings: TrackerSettings) -> NDArray[np.float64]:
        """Delays of the found notes, in seconds, over all pieces."""


class HeldOutPieces:
    """Implements ``Timed``: probabilities of the validation pieces."""

    def __init__(
        self, transcriber: TranscriptionModel, synth: SynthConfig, pieces: int, seconds: float
    ) -> None:
        self.frame_s = HOP / transcriber.config.sample_rate
        self.heads, rows = note_heads(transcriber.config.heads)
        self.pieces: list[tuple[NDArray[np.float32], NoteList]] = []
        with Engine(transcriber) as engine:
            for piece in validation_pieces(synth, pieces, seconds, seed=11):
                for probabilities in lookahead_probabilities(engine, piece.audio, rows):
                    self.pieces.append((probabilities, note_list(piece.notes)))

    def objective(self, settings: TrackerSettings) -> float:
        """Mean over pieces of onset F1 plus half of frame F1 and of onset+offset F1."""
        total = 0.0
        for probabilities, reference in self.pieces:
            estimated = tracked(settings, probabilities, self.frame_s, self.heads)
            frames = probabilities.shape[1]
            rolls = (notes.roll(frames, self.frame_s) for notes in (estimated, reference))
            total += note_f1(reference, estimated, offsets=False)
            total += 0.5 * frame_f1(*rolls) + 0.5 * note_f1(reference, estimated, offsets=True)
        return total / len(self.pieces)

    def onset_errors_s(self, settings: TrackerSettings) -> NDArray[np.float64]:
        """As in ``Timed``."""
        errors = [np.zeros(0)]
        for probabilities, reference in self.pieces:
            notes = tracked(settings, probabilities, self.frame_s, self.heads)
            pairs = matched_onsets(reference, notes)
            errors.append(notes.onset_s[pairs[:, 1]] - reference.onset_s[pairs[:, 0]])
        return np.concatenate(errors)

    def velocity_scale(self, settings: TrackerSettings) -> float:
        """The ``velocity_scale`` that makes the found notes as loud as they were played, in the
        median and to a tenth; that of ``settings`` if none is found."""
        ratios = [np.zeros(0)]
        for probabilities, reference in self.pieces:
            bare = replace(settings, velocity_scale=1.0)
            notes = tracked(bare, probabilities, self.frame_s, self.heads)
            pairs = matched_onsets(reference, notes)
            ratios.append(reference.velocity[pairs[:, 0]] / notes.velocity[pairs[:, 1]])
        found = np.concatenate(ratios)
        return round(float(np.median(found)), 1) if len(found) else settings.velocity_scale


class Together:
    """Pieces of several kinds, weighted."""

    def __init__(self, parts: Sequence[tuple[float, Timed]]) -> None:
        self.parts = parts
        self.heads = parts[0][1].heads

    def objective(self, settings: TrackerSettings) -> float:
        """The weighted sum."""
        return sum(weight * pieces.objective(settings) for weight, pieces in self.parts)

    def correction_frames(self, settings: TrackerSettings) -> float:
        """The correction that zeroes the median onset error, averaged over the kinds of pieces,
        within the limits of ``onset_correction_frames`` and to a tenth."""
        bare = replace(settings, onset_correction_frames=0.0)
        frames = [
            float(np.median(errors)) / pieces.frame_s
            for _, pieces in self.parts
            if len(errors := pieces.onset_errors_s(bare))
        ]
        late = float(np.mean(frames)) if frames else 0.0
        return round(min(MAX_CORRECTION, max(-MAX_CORRECTION, -late)), 1) + 0.0


def tune(
    pieces: Pieces,
    start: TrackerSettings | None = None,
    grid: Mapping[str, Sequence[Any]] = GRID,
) -> TrackerSettings:
    """Coordinate search along a grid; combinations that make no sense are passed over.

    Logs a warning for each setting that ends at the end of its grid: a wider one may be better.
    """
    search = _Search(pieces, start or TrackerSettings(), grid)
    names = [name for name in grid if name != "offset_threshold" or "offset" in pieces.heads]
    for round_ in range(ROUNDS):
        before = search.score
        for name in names:
            if round_ == 0:
                search.scan(name)
            search.climb(name)
            logger.info("%s %s: %.4f", name, getattr(search.best, name), search.score)
        if search.score == before:
            break
    for name in at_an_end(search.best, grid):
        logger.warning("%s %s is at the end of its grid", name, getattr(search.best, name))
    return search.best


def at_an_end(settings: TrackerSettings, grid: Mapping[str, Sequence[Any]] = GRID) -> list[str]:
    """Settings at an end of their grid, beyond which there are values that make sense."""
    ends = {
        name: [end for end in (values[0], values[-1]) if end is not None]
        for name, values in grid.items()
    }
    for name in ends.keys() & {"release_frames", "min_note_frames"}:
        ends[name] = [max(grid[name])]  # none is shorter than the first
    return [name for name, values in ends.items() if getattr(settings, name) in values]


class _Search:
    """The best settings so far, and steps to better ones."""

    def __init__(
        self, pieces: Pieces, start: TrackerSettings, grid: Mapping[str, Sequence[Any]]
    ) -> None:
        self._pieces = pieces
        self._grid = grid
        self.best = start
        self.score = pieces.objective(start)
        self._seen = {start}

    def scan(self, name: str) -> None:
        """Look along the whole grid, in wide steps; None is a place of its own."""
        for value in self._grid[name]:
            if value is None or self._grid[name].index(value) % WIDE_STEP == WIDE_STEP // 2:
                self._try(name, value)

    def climb(self, name: str) -> None:
        """Small steps either way from the best, as long as they help."""
        values = [value for value in self._grid[name] if value is not None]
        for step in (1, -1):
            failed = 0
            here = getattr(self.best, name)
            if here is None:
                return
            at = min(range(len(values)), key=lambda i: abs(values[i] - here)) + step
            while failed < REACH and 0 <= at < len(values):
                failed = 0 if self._try(name, values[at]) else failed + 1
                at += step

    def _try(self, name: str, value: Any) -> bool:
        """Whether the value is valid and better."""
        try:
            candidate = replace(self.best, **{name: value})
        except ValueError:
            return False
        if candidate in self._seen:
            return False
        self._seen.add(candidate)
        score = self._pieces.objective(candidate)
        if score <= self.score:
            return False
        self.best, self.score = candidate, score
        return True


def settings_for(
    transcriber: TranscriptionModel, synth: SynthConfig, pieces: int, seconds: float
) -> TrackerSettings:
    """The card's settings with the best of GRID on rendered pieces and, if ``synth.real_root`` is
    given, real recordings.

    Args:
        pieces: number of rendered pieces.
        seconds: length of each; four times as much of each recording.
    """
    rendered = HeldOutPieces(transcriber, synth, pieces, seconds)
    parts: list[tuple[float, Timed]] = [(1.0, rendered)]
    if synth.real_root is not None:
        held_out = load_recordings(synth.real_root, synth.cache, "validation", synth.real_left_out)
        around = load_surroundings(synth.root, synth.cache, transcriber.config.sample_rate)
        recorded = RecordedPieces(transcriber, held_out, 4 * seconds, around)
        parts.append((REAL_WEIGHT, recorded))
    together = Together(parts)
    start = TrackerSettings.from_card(transcriber.card)
    # Thresholds by age are chosen for an onset threshold (training.shipping.early).
    best = tune(together, replace(start, early_onset_thresholds=()))
    return replace(
        best,
        onset_correction_frames=together.correction_frames(best),
        velocity_scale=rendered.velocity_scale(best),
    )


def main(arguments: list[str] | None = None) -> int:
    return command("training.shipping.tune", __doc__, settings_for, 16, 40.0, arguments)


if __name__ == "__main__":
    sys.exit(main())
