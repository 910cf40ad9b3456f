"""Choose the note tracker's settings: ``python -m training.shipping.tune --model live --write``.

Uses validation scores rendered with held-out instruments and, with ``--real DIR``, the validation
split of real recordings with scores, which cause false notes and have ends that no rendering has;
recordings for evaluation are never used. The network runs once per look-ahead; then the settings
are improved one at a time along their grids, first in wide steps, until the objective no longer
improves.
``--write`` stores them in the weights' card.
"""

import argparse
import dataclasses
import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from model.commands import documented_parser
from model.storage import load, resolve, shipped
from model.transcriber import TranscriptionModel
from service.notes.tracker_settings import TrackerSettings
from training.music.metrics import NoteList, frame_f1
from training.music.synth.config import CACHE, SynthConfig
from training.shipping.card import write_card
from training.shipping.pieces import Pieces, Truth, recorded_material, rendered_material

logger = logging.getLogger(__name__)


class Chooser(NamedTuple):
    """Takes the settings in the card of a network and chooses some of them again."""

    choose: Callable[[TranscriptionModel, SynthConfig, int, float], TrackerSettings]
    """From the network, the material, the number of rendered pieces and their length in seconds."""
    pieces: int
    """By default."""
    seconds: float
    heads: frozenset[str] = frozenset()
    """That the network must have."""


def add_material(parser: argparse.ArgumentParser) -> None:
    """Where the material of rendered audio is, and its cache."""
    parser.add_argument("--synth", type=Path, default=Path("data/synth"), help="training data")
    parser.add_argument("--cache", type=Path, default=CACHE, help="its cache")


def command(
    program: str, description: str | None, chooser: Chooser, arguments: list[str] | None
) -> int:
    """Chooses settings and optionally writes them into the card; returns the exit status."""
    parser = documented_parser(program, description)
    parser.add_argument("--model", default="live", help=f"{', '.join(shipped())} or a .safetensors")
    add_material(parser)
    parser.add_argument("--real", type=Path, help="real recordings with their scores")
    parser.add_argument("--pieces", type=int, default=chooser.pieces, help="rendered pieces")
    parser.add_argument("--seconds", type=float, default=chooser.seconds, help="length of each")
    parser.add_argument("--write", action="store_true", help="into the card of the weights")
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    try:
        transcriber = load(options.model)
        if missing := chooser.heads - set(transcriber.config.heads):
            raise ValueError(f"{options.model} lacks the heads {', '.join(sorted(missing))}")
        synth = SynthConfig(options.synth, options.cache, real_root=options.real)
        found = chooser.choose(transcriber, synth, options.pieces, options.seconds)
        logger.info("%s", found)
        if options.write:
            card = {**transcriber.card, "tracker": dataclasses.asdict(found)}
            write_card(Path(resolve(options.model)), card)
    except (ValueError, OSError) as error:
        print(f"{program}: {error}", file=sys.stderr)
        return 1
    return 0


SEED = 11  # of the rendered pieces; 12 are those of onsets
_PROBABILITIES = (0.02, *(i / 20 for i in range(1, 20)), 0.98)
# Without onset_radius_frames: as the delay of a note_on, it is not a matter of accuracy alone.
GRID: dict[str, Sequence[Any]] = {
    "onset_threshold": _PROBABILITIES,
    "restrike_threshold": (*_PROBABILITIES, None),
    "frame_on_threshold": _PROBABILITIES,
    "frame_off_threshold": _PROBABILITIES,
    "pedal_frame_off_threshold": (*_PROBABILITIES, None),
    "release_frames": tuple(range(1, 9)),  # more would report ends later than 0.2 s
    # As the least distance of repeated notes, no more than 0.1 s, a fast trill.
    "min_note_frames": tuple(range(2, 10)),
    "frame_start_threshold": (*_PROBABILITIES, None),
    "frame_start_frames": (2, 3, 4, 6, 8, 12, 16, 24, 32),
    "offset_threshold": (*_PROBABILITIES, None),
}
WIDE_STEP = 4  # of the first pass along a grid
REACH = 2  # steps in a row that may fail before a direction is given up
ROUNDS = 4
MAX_CORRECTION = 0.4  # frames
REAL_WEIGHT = 2.0  # of the objective on recordings, against that on rendered pieces


class RenderedPieces(Pieces):
    """Pieces whose ends and velocities are known exactly."""

    ends = 0.5

    def score(self, truth: Truth, found: NoteList, frames: int) -> float:
        """And half of frame F1."""
        rolls = (notes.roll(frames, self.frame_s) for notes in (truth.notes, found))
        return super().score(truth, found, frames) + 0.5 * frame_f1(*rolls)


def correction_frames(kinds: Sequence[Pieces], settings: TrackerSettings) -> float:
    """The correction that zeroes the median onset error, averaged over the kinds of pieces, within
    the limits of ``onset_correction_frames`` and to a tenth."""
    bare = replace(settings, onset_correction_frames=0.0)
    frames = [
        float(np.median(errors)) / pieces.frame_s
        for pieces in kinds
        if len(errors := pieces.onset_errors_s(bare))
    ]
    late = float(np.mean(frames)) if frames else 0.0
    return round(min(MAX_CORRECTION, max(-MAX_CORRECTION, -late)), 1) + 0.0


def tune(
    objective: Callable[[TrackerSettings], float],
    start: TrackerSettings,
    grid: Mapping[str, Sequence[Any]],
) -> TrackerSettings:
    """Coordinate search along a grid; combinations that make no sense are passed over.

    Logs a warning for each setting that ends at the end of its grid: a wider one may be better.
    """
    search = _Search(objective, start, grid)
    for round_ in range(ROUNDS):
        before = search.score
        for name in grid:
            if round_ == 0:
                search.scan(name)
            search.climb(name)
            logger.info("%s %s: %.4f", name, getattr(search.best, name), search.score)
        if search.score == before:
            break
    for name, values in grid.items():
        first, last, value = values[0], values[-1], getattr(search.best, name)
        if name in ("release_frames", "min_note_frames"):
            first = None  # no count of frames is below it
        if value is not None and value in (first, last):
            logger.warning("%s %s is at the end of its grid", name, value)
    return search.best


class _Search:
    """The best settings so far, and steps to better ones."""

    def __init__(
        self,
        objective: Callable[[TrackerSettings], float],
        start: TrackerSettings,
        grid: Mapping[str, Sequence[Any]],
    ) -> None:
        self._objective, self._grid = objective, grid
        self.best, self.score = start, objective(start)
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
        score = self._objective(candidate)
        if score <= self.score:
            return False
        self.best, self.score = candidate, score
        return True


def settings_for(
    transcriber: TranscriptionModel, synth: SynthConfig, pieces: int, seconds: float
) -> TrackerSettings:
    """The card's settings with the best of GRID on rendered pieces and, if ``synth.real_root`` is
    given, real recordings.

    pieces: number of rendered pieces; seconds: length of each; four times as much of each
    recording.
    """
    rate = transcriber.config.sample_rate
    rendered = RenderedPieces(transcriber, rendered_material(synth, rate, pieces, seconds, SEED))
    kinds: list[Pieces] = [rendered]
    weights = [1.0]
    if synth.real_root is not None:
        length = int(4 * seconds * rate)
        recorded = recorded_material(synth, rate, length, 0, "validation", elsewhere=True)
        kinds.append(Pieces(transcriber, recorded))
        weights.append(REAL_WEIGHT)

    def objective(settings: TrackerSettings) -> float:
        return sum(w * pieces.objective(settings) for w, pieces in zip(weights, kinds, strict=True))

    grid = dict(GRID)
    for head, name in (("offset", "offset_threshold"), ("pedal", "pedal_frame_off_threshold")):
        if head not in rendered.heads:
            del grid[name]
    start = TrackerSettings.from_card(transcriber.card)
    # Thresholds by age are chosen for an onset threshold (training.shipping.early).
    best = tune(objective, replace(start, early_onset_thresholds=()), grid)
    return replace(best, onset_correction_frames=correction_frames(kinds, best))


CHOOSER = Chooser(settings_for, pieces=16, seconds=40.0)


def main(arguments: list[str] | None = None) -> int:
    return command("training.shipping.tune", __doc__, CHOOSER, arguments)


if __name__ == "__main__":
    sys.exit(main())
