"""How the note tracker finds and names notes, chosen on passages of every family.

The network runs once; then the settings are improved one at a time along their grids, first in wide
steps, until the mean over the families no longer improves. Onset thresholds and end biases are
chosen for each family's classes of instruments, and for all others. Names of instruments
(``service.notes.instrument_classifier``) and the pedal follow, with an objective of their own.
"""

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from model.config import HOP, INSTRUMENT_HEADS, SAMPLE_RATE
from model.transcriber import TranscriptionModel
from service.engine.local import LocalComputer
from service.notes.event_detector import EventDetector
from service.notes.note_collector import NoteCollector
from service.notes.tracker_settings import LineSettings, TrackerSettings
from service.protocol.options import StreamOptions
from training.evaluation.families import Tally
from training.evaluation.truth import Truth, known_f1, known_frame_f1, truth_of
from training.music.families import FAMILIES, Passage, validation_passages
from training.music.metrics import estimated_notes, matched_onsets
from training.music.notes import Notes
from training.music.synth.config import SynthConfig
from training.music.transcribe import transcribe_array

logger = logging.getLogger(__name__)

STREAM = StreamOptions(lookahead_ms=200.0, block_frames=8)  # how passages are heard
SEED = 11  # of the passages, other than those that training is validated on

Grid = Mapping[str, Sequence[Any]]
_PROBABILITIES = tuple(i / 20 for i in range(1, 20))
_BIASES = tuple(i / 2 for i in range(-6, 9))
BY_CLASS: Grid = {
    "onset_thresholds": _PROBABILITIES[:12],  # where single lines are all there is, any seems right
    "end_biases": _BIASES,
}
GRID: Grid = {
    "onset_threshold": _PROBABILITIES,
    "end_bias": _BIASES,
    "pedal_end_bias": _BIASES,
    "frame_on_threshold": (0.02, *_PROBABILITIES),
    # As the least distance of repeated notes, no more than 0.1 s, a fast trill.
    "min_note_frames": tuple(range(2, 10)),
    # NAME.FAMILY: the setting NAME of the classes of a family.
    **{
        f"{name}.{family}": values
        for name, values in BY_CLASS.items()
        for family, players in FAMILIES.items()
        if players.classes
    },
    # Of single lines; without what makes their notes later, and when several are heard.
    "line.bias": tuple(i / 4 for i in range(-4, 13)),
    "line.doubt_bias": tuple(i / 2 for i in range(13)),
    "line.cost": tuple(float(cost) for cost in range(3, 31, 3)),
    "line.onset_weight": tuple(i / 2 for i in range(11)),
    "line.again_threshold": _PROBABILITIES,
}
NAMING_GRID: Grid = {
    "belief_trust": (0.0, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0),
    "belief_kept": (0.8, 0.9, 0.95, 0.97, 0.98, 0.99, 0.995),
    "belief_prior_notes": (0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0),
    "pedal_presence_threshold": (0.02, 0.05, 0.1, 0.2, 0.3, 0.5),
    "pedal_on_threshold": (0.02, *_PROBABILITIES),
    "pedal_off_threshold": (0.02, *_PROBABILITIES),
}
PEDAL_WEIGHT = 0.5
WIDE_STEP = 4  # of the first pass along a grid
REACH = 2  # steps from the best that are tried
ROUNDS = 3
MAX_CORRECTION = 0.4  # frames


@dataclass(frozen=True)
class Piece:
    """A passage as a network hears it."""

    passage: Passage
    truth: Truth
    probabilities: NDArray[np.float16]  # [heads, frames, PITCHES]
    heads: tuple[str, ...]

    def listened(self, settings: TrackerSettings) -> NoteCollector:
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


def listened(
    settings: TrackerSettings, probabilities: NDArray, frame_s: float, heads: tuple[str, ...]
) -> NoteCollector:
    """What is found in [heads, frames, PITCHES]."""
    detector, score = EventDetector(settings, frame_s, heads), NoteCollector()
    score.add(detector.push(0, probabilities.astype(np.float32)))
    score.add(detector.finish(probabilities.shape[1]))
    return score


def tuned_settings(
    transcriber: TranscriptionModel, synth: SynthConfig, count: int, seconds: float
) -> TrackerSettings:
    """The card's settings with the best of both grids on this many passages of each family."""
    pieces = heard(transcriber, validation_passages(synth, count, seconds, SEED))
    start = TrackerSettings.from_card(transcriber.card)
    # What is added by age is chosen for an onset threshold (training.shipping.early).
    start = replace(start, early_odds=(), line=start.line or LineSettings())

    def mean_score(settings: TrackerSettings, knob: str) -> float:
        """A family alone judges what is its own, so that it is given up for no other."""
        name, _, family = knob.partition(".")
        judges = [pieces[family]] if name in BY_CLASS and family in pieces else pieces.values()
        return float(np.mean([np.mean([one.score(settings) for one in some]) for some in judges]))

    best = tune(mean_score, start, GRID)
    best = replace(best, onset_correction_frames=correction_frames(pieces, best))
    if {"pedal", *INSTRUMENT_HEADS} <= set(transcriber.config.heads):
        best = tune(lambda settings, _: naming(pieces, settings), best, NAMING_GRID)
    return best


def naming(pieces: Pieces, settings: TrackerSettings) -> float:
    """The instrument accuracy, a mean over the families, plus half of the mean of the pedal's F1 of
    frames with it down and with it up: pianists hold it most of the time, so that the first alone
    is best served by "always"."""
    accuracy, whole = [], Tally()
    for some in pieces.values():
        tally = Tally()
        for piece in some:
            score = piece.listened(settings)
            for one in (tally, whole):
                one.add(piece.passage, score.notes, score.pedal)
        accuracy.append(tally.accuracy)
    return float(np.mean(accuracy)) + PEDAL_WEIGHT * float(np.mean(whole.pedal_f1))


def tune(
    objective: Callable[[TrackerSettings, str], float], start: TrackerSettings, grid: Grid
) -> TrackerSettings:
    """Coordinate search along a grid; combinations that make no sense are passed over.
    ``objective`` is given the entry of the grid too: it need only judge what that one can change.
    """
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

    for round_ in range(ROUNDS):
        before = best
        for name, values in grid.items():
            for value in () if round_ else values[WIDE_STEP // 2 :: WIDE_STEP]:
                improves(name, value)
            while any([improves(name, value) for value in near(values, value_of(best, name))]):
                pass
            logger.info("%s %s: %.4f", name, value_of(best, name), standing.get(name, math.nan))
        if best is before:
            break
    return best


def near(values: Sequence[Any], here: Any) -> Sequence[Any]:
    """Those at most REACH steps from the present one."""
    at = min(range(len(values)), key=lambda i: abs(values[i] - here))
    return values[max(0, at - REACH) : at + REACH + 1]


def value_of(settings: TrackerSettings, knob: str) -> Any:
    """What an entry of a grid is; of classes without a value of their own, the shared one."""
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
    medians = []
    for some in pieces.values():
        late_s: list[float] = []
        for piece in some:
            found = piece.found(bare)
            rows, columns = matched_onsets(piece.truth.notes, found).T
            late_s.extend(found.onset[columns] - piece.truth.notes.onset[rows])
        if late_s:
            medians.append(float(np.median(late_s)) / (HOP / SAMPLE_RATE))
    late = float(np.mean(medians)) if medians else 0.0
    return round(min(MAX_CORRECTION, max(-MAX_CORRECTION, -late)), 1) + 0.0
