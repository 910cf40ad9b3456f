"""Choose the note tracker's settings: ``python -m training.shipping.tune --model live --write``.

Uses the families of ``training.music.families``, with ``--real DIR`` the validation split of real
recordings among them; recordings for evaluation are never used. The network runs once; then the
settings are improved one at a time along their grids, first in wide steps, until the mean over the
families no longer improves. Onset thresholds and end biases are chosen for each family's classes of
instruments, and for all others. ``--write`` stores them in the weights' card.
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
from model.config import HOP, SAMPLE_RATE
from model.storage import load, resolve, shipped
from model.transcriber import TranscriptionModel
from service.notes.line_settings import LineSettings
from service.notes.tracker_settings import TrackerSettings
from training.music.families import FAMILIES
from training.music.synth.config import CACHE, SynthConfig
from training.shipping.card import write_card
from training.shipping.pieces import Pieces, chosen_passages

logger = logging.getLogger(__name__)


class TuningPart(NamedTuple):
    """Takes the settings in the card of a network and chooses some of them again."""

    choose: Callable[[TranscriptionModel, SynthConfig, int, float], TrackerSettings]
    """From the network, the material, the number of passages of each family and their seconds."""
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
    program: str, description: str | None, part: TuningPart, arguments: list[str] | None
) -> int:
    """Chooses settings and optionally writes them into the card; returns the exit status."""
    parser = documented_parser(program, description)
    parser.add_argument("--model", default="live", help=f"{', '.join(shipped())} or a .safetensors")
    add_material(parser)
    parser.add_argument("--real", type=Path, help="real recordings with their scores")
    parser.add_argument("--pieces", type=int, default=part.pieces, help="passages of each family")
    parser.add_argument("--seconds", type=float, default=part.seconds, help="length of each")
    parser.add_argument("--write", action="store_true", help="into the card of the weights")
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    try:
        transcriber = load(options.model)
        if missing := part.heads - set(transcriber.config.heads):
            raise ValueError(f"{options.model} lacks the heads {', '.join(sorted(missing))}")
        synth = SynthConfig(options.synth, options.cache, real_root=options.real)
        found = part.choose(transcriber, synth, options.pieces, options.seconds)
        logger.info("%s", found)
        if options.write:
            card = {**transcriber.card, "tracker": dataclasses.asdict(found)}
            write_card(Path(resolve(options.model)), card)
    except (ValueError, OSError) as error:
        print(f"{program}: {error}", file=sys.stderr)
        return 1
    return 0


_PROBABILITIES = tuple(i / 20 for i in range(1, 20))
_BIASES = tuple(i / 2 for i in range(-6, 9))
SHARED: dict[str, Sequence[Any]] = {
    "onset_threshold": _PROBABILITIES,
    "end_bias": _BIASES,
    "pedal_end_bias": _BIASES,
    "frame_on_threshold": (0.02, *_PROBABILITIES),
    # As the least distance of repeated notes, no more than 0.1 s, a fast trill.
    "min_note_frames": tuple(range(2, 10)),
}
"""Without onset_radius_frames: as the delay of a note_on, it is not a matter of accuracy alone."""
BY_CLASS: dict[str, Sequence[Any]] = {"onset_thresholds": _PROBABILITIES, "end_biases": _BIASES}
LINE: dict[str, Sequence[Any]] = {
    "bias": tuple(i / 4 for i in range(-4, 13)),
    "doubt_bias": tuple(i / 2 for i in range(13)),
    "cost": tuple(float(cost) for cost in range(3, 31, 3)),
    "onset_weight": tuple(i / 2 for i in range(11)),
    "again_threshold": _PROBABILITIES,
}
"""Of single lines; without what makes their notes later, and when several are heard."""
GRID = (
    SHARED
    | {
        f"{name}.{family}": values
        for name, values in BY_CLASS.items()
        for family, players in FAMILIES.items()
        if players.classes
    }
    | {f"line.{name}": values for name, values in LINE.items()}
)
"""``NAME.FAMILY`` is the setting NAME of the classes of a family."""
WIDE_STEP = 4  # of the first pass along a grid
REACH = 2  # steps in a row that may fail before a direction is given up
ROUNDS = 3
MAX_CORRECTION = 0.4  # frames


def value_of(settings: TrackerSettings, knob: str) -> Any:
    """What an entry of GRID is; of classes without a value of their own, what they fall back to."""
    name, _, family = knob.partition(".")
    if name == "line":
        return getattr(settings.line or LineSettings(), family)
    value = getattr(settings, name)
    if not family:
        return value
    shared = settings.onset_threshold if name == "onset_thresholds" else settings.end_bias
    return value.get(FAMILIES[family].classes[0], shared)


def with_value(settings: TrackerSettings, knob: str, value: Any) -> TrackerSettings:
    name, _, family = knob.partition(".")
    if name == "line":
        value = replace(settings.line or LineSettings(), **{family: value})
    elif family:
        value = {**getattr(settings, name), **dict.fromkeys(FAMILIES[family].classes, value)}
    return replace(settings, **{name: value})


def correction_frames(pieces: Pieces, settings: TrackerSettings) -> float:
    """The correction that zeroes the median onset error, averaged over the families, within the
    limits of ``onset_correction_frames`` and to a tenth."""
    bare = replace(settings, onset_correction_frames=0.0)
    frame_s = HOP / SAMPLE_RATE
    frames = [
        float(np.median(errors)) / frame_s for errors in pieces.onset_errors_s(bare) if len(errors)
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
            logger.info("%s %s: %.4f", name, value_of(search.best, name), search.score)
        if search.score == before:
            break
    for name, values in grid.items():
        first, last, value = values[0], values[-1], value_of(search.best, name)
        if name == "min_note_frames":
            first = None  # no count of frames is below it
        if value in (first, last):
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
        self._seen = [start]

    def scan(self, name: str) -> None:
        """Look along the whole grid, in wide steps."""
        for value in self._grid[name][WIDE_STEP // 2 :: WIDE_STEP]:
            self._try(name, value)

    def climb(self, name: str) -> None:
        """Small steps either way from the best, as long as they help."""
        values = self._grid[name]
        for step in (1, -1):
            failed = 0
            here = value_of(self.best, name)
            at = min(range(len(values)), key=lambda i: abs(values[i] - here)) + step
            while failed < REACH and 0 <= at < len(values):
                failed = 0 if self._try(name, values[at]) else failed + 1
                at += step

    def _try(self, name: str, value: Any) -> bool:
        """Whether the value is valid and better."""
        try:
            candidate = with_value(self.best, name, value)
        except ValueError:
            return False
        if candidate in self._seen:
            return False
        self._seen.append(candidate)
        score = self._objective(candidate)
        if score <= self.score:
            return False
        self.best, self.score = candidate, score
        return True


def settings_for(
    transcriber: TranscriptionModel, synth: SynthConfig, count: int, seconds: float
) -> TrackerSettings:
    """The card's settings with the best of GRID on this many passages of each family."""
    pieces = Pieces(transcriber, chosen_passages(synth, count, seconds))
    start = TrackerSettings.from_card(transcriber.card)
    # What is added by age is chosen for an onset threshold (training.shipping.early).
    start = replace(start, early_odds=(), line=start.line or LineSettings())
    best = tune(pieces.objective, start, GRID)
    best = replace(best, onset_correction_frames=correction_frames(pieces, best))
    for family, score in pieces.scores(best).items():
        logger.info("%s: %.3f", family, score)
    return best


PART = TuningPart(settings_for, pieces=8, seconds=14.0)


def main(arguments: list[str] | None = None) -> int:
    return command("training.shipping.tune", __doc__, PART, arguments)


if __name__ == "__main__":
    sys.exit(main())
