"""How the note tracker finds notes, chosen on the families of ``training.music.families``.

The network runs once; then the settings are improved one at a time along their grids, first in wide
steps, until the mean over the families no longer improves. Onset thresholds and end biases are
chosen for each family's classes of instruments, and for all others.
"""

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from model.config import HOP, SAMPLE_RATE
from model.transcriber import TranscriptionModel
from service.notes.tracker_settings import LineSettings, TrackerSettings
from training.music.families import FAMILIES
from training.music.synth.config import SynthConfig
from training.shipping.pieces import Pieces, chosen_passages

logger = logging.getLogger(__name__)

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
BY_CLASS: dict[str, Sequence[Any]] = {
    "onset_thresholds": _PROBABILITIES[:12],  # where single lines are all there is, any seems right
    "end_biases": _BIASES,
}
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


def tuned_settings(
    transcriber: TranscriptionModel, synth: SynthConfig, count: int, seconds: float
) -> TrackerSettings:
    """The card's settings with the best of GRID on this many passages of each family."""
    pieces = Pieces(transcriber, chosen_passages(synth, count, seconds))
    start = TrackerSettings.from_card(transcriber.card)
    # What is added by age is chosen for an onset threshold (training.shipping.early).
    start = replace(start, early_odds=(), line=start.line or LineSettings())
    best = tune(lambda settings, knob: pieces.objective(settings, heard_by(knob)), start, GRID)
    best = replace(best, onset_correction_frames=correction_frames(pieces, best))
    for family, score in pieces.scores(best).items():
        logger.info("%s: %.3f", family, score)
    return best


def tune(
    objective: Callable[[TrackerSettings, str], float],
    start: TrackerSettings,
    grid: Mapping[str, Sequence[Any]],
) -> TrackerSettings:
    """Coordinate search along a grid; combinations that make no sense are passed over.
    ``objective`` is given the entry of the grid too: it need only judge what that one can change.
    Logs a warning for each setting that ends at the end of its grid: a wider one may be better."""
    best, seen = start, [start]
    standing: dict[str, float] = {}  # of the best, by entry

    def improves(name: str, value: Any) -> bool:
        nonlocal best, standing
        try:
            candidate = with_value(best, name, value)
        except ValueError:
            return False
        if candidate in seen:
            return False
        seen.append(candidate)
        if name not in standing:
            standing[name] = objective(best, name)
        found = objective(candidate, name)
        if found <= standing[name]:
            return False
        best, standing = candidate, {name: found}
        return True

    def climb(name: str, step: int) -> None:
        """Small steps from the best, as long as they help."""
        values, here, failed = grid[name], value_of(best, name), 0
        at = min(range(len(values)), key=lambda i: abs(values[i] - here)) + step
        while failed < REACH and 0 <= at < len(values):
            failed = 0 if improves(name, values[at]) else failed + 1
            at += step

    for round_ in range(ROUNDS):
        before = best
        for name, values in grid.items():
            for value in () if round_ else values[WIDE_STEP // 2 :: WIDE_STEP]:
                improves(name, value)
            climb(name, 1)
            climb(name, -1)
            logger.info("%s %s: %.4f", name, value_of(best, name), standing.get(name, math.nan))
        if best is before:
            break
    for name, values in grid.items():
        if value_of(best, name) in (values[0], values[-1]):
            logger.warning("%s %s is at the end of its grid", name, value_of(best, name))
    return best


def heard_by(knob: str) -> tuple[str, ...]:
    """Those that judge an entry of GRID: a family its own, so that it is given up for no other; all
    (none named) what is shared."""
    name, _, family = knob.partition(".")
    return (family,) if name in BY_CLASS else ()


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
