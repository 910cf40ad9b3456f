"""Chooses the note tracker's settings on passages of every family.

The network runs once. Then one setting after another is improved along its grid, first in wide
steps, until no change improves the score, for at most ROUNDS rounds. The score is the mean over the
families or, for the setting of a family, the score of this family. Each family with instrument
classes has its own onset threshold and end bias. The settings of instrument labels
(``service.notes.instrument_classifier``) and of the pedal are chosen next, with a separate
objective. ``settings_on_recordings`` then corrects a few settings on real recordings.
"""

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from model.config import HOP, INSTRUMENT_HEADS, SAMPLE_RATE
from model.transcriber import TranscriptionModel
from service.notes.tracker_settings import TrackerSettings
from training.evaluation.families import FamilyCounts
from training.music.families import FAMILIES, Passage
from training.music.metrics import matched_onsets
from training.shipping.evidence import (
    Evidence,
    PredictedPassages,
    predict_passages,
    recorded_passages,
    weighted_mean,
)

logger = logging.getLogger(__name__)

SEED = 11  # seed of the passages; validation in training uses another seed

DrawPassages = Callable[[], dict[str, list[Passage]]]
Grid = Mapping[str, Sequence[Any]]
_PROBABILITIES = tuple(i / 20 for i in range(1, 20))
_BIASES = tuple(i / 2 for i in range(-6, 9))
BY_CLASS: Grid = {
    # At most 0.6: the score of monophonic passages hardly depends on this threshold.
    "onset_thresholds": _PROBABILITIES[:12],
    "end_biases": _BIASES,
}
GRID: Grid = {
    "onset_threshold": _PROBABILITIES,
    "end_bias": _BIASES,
    "pedal_end_bias": _BIASES,
    "offset_weight": tuple(float(i) for i in range(5)),
    "frame_on_threshold": (0.02, *_PROBABILITIES),
    # At most 0.1 s, because it is also the minimum distance of repeated notes, e.g. in trills.
    "min_note_frames": tuple(range(2, 10)),
    # NAME.FAMILY: the setting NAME of the classes of a family.
    **{
        f"{name}.{family}": values
        for name, values in BY_CLASS.items()
        for family, members in FAMILIES.items()
        if members.classes
    },
}
NAMING_GRID: Grid = {
    "belief_trust": (0.0, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0),
    "belief_kept": (0.8, 0.9, 0.95, 0.97, 0.98, 0.99, 0.995),
    "belief_prior_notes": (0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0),
    "pedal_presence_threshold": (0.02, 0.05, 0.1, 0.2, 0.3, 0.5),
    "pedal_on_threshold": (0.02, *_PROBABILITIES),
    "pedal_off_threshold": (0.02, *_PROBABILITIES),
}
RECORDED_GRID: Grid = {
    name: values
    for name, values in GRID.items()
    if name.partition(".")[0] in BY_CLASS or name in ("pedal_end_bias", "offset_weight")
}
"""Few settings, because there are few real recordings of each family."""
MIN_GAIN = 0.002  # minimum gain of a new value in the mean of real recordings and rendered passages
MAX_LOSS = 0.005  # maximum loss in the rendered passages, and in each half of the recordings
PEDAL_WEIGHT = 0.5
WIDE_STEP = 4  # step of the first pass along a grid
REACH = 2  # maximum number of steps from the best value in later passes
ROUNDS = 3
MAX_CORRECTION = 0.4  # maximum absolute value of onset_correction_frames


def tuned_settings(
    transcriber: TranscriptionModel, draw_passages: DrawPassages, _: Path | None
) -> TrackerSettings:
    """Return the card's settings with the best values of GRID and, if the network has pedal and
    instrument heads, of NAMING_GRID. The result has a new ``onset_correction_frames`` and no
    ``early_odds``."""
    pieces = predict_passages(transcriber, draw_passages())
    start = TrackerSettings.from_card(transcriber.card)
    # `early_odds` depend on the onset threshold, so they are chosen later (anytime_thresholds).
    start = replace(start, early_odds=(), line=True)

    def mean_score(settings: TrackerSettings, entry: str) -> float:
        """Return the mean score of the settings. The entry of a family is scored on the passages of
        this family only."""
        name, _, family = entry.partition(".")
        groups = [pieces[family]] if name in BY_CLASS and family in pieces else pieces.values()
        scores = [np.mean([piece.score(settings) for piece in group]) for group in groups]
        return float(np.mean(scores))

    best = tune(mean_score, start, GRID)
    best = replace(best, onset_correction_frames=correction_frames(pieces, best))
    if {"pedal", *INSTRUMENT_HEADS} <= set(transcriber.config.heads):
        best = tune(lambda settings, _: labelling_score(pieces, settings), best, NAMING_GRID)
    return best


def settings_on_recordings(
    transcriber: TranscriptionModel, draw_passages: DrawPassages, folder: Path | None
) -> TrackerSettings:
    """Return the card's settings, corrected for the families that have real recordings in a folder.
    If the folder is None, they are unchanged. Raises OSError or ValueError for unreadable files."""
    start = TrackerSettings.from_card(transcriber.card)
    if folder is None:
        return start
    halves = tuple(predict_passages(transcriber, half) for half in recorded_passages(folder))
    passages = draw_passages()
    recorded = {name: passages[name] for name in passages if name in {*halves[0], *halves[1]}}
    return settings_by_evidence(Evidence(predict_passages(transcriber, recorded), halves), start)


def settings_by_evidence(evidence: Evidence, start: TrackerSettings) -> TrackerSettings:
    """Return improved settings. Each change gains at least MIN_GAIN in the mean of rendered
    passages and real recordings. All changes together lose at most MAX_LOSS in the rendered
    passages and in each half of the recordings."""
    recorded = {family for half in evidence.halves for family in half}
    families = {name: name.partition(".")[2] or "piano" for name in RECORDED_GRID}
    grid = {name: values for name, values in RECORDED_GRID.items() if families[name] in recorded}
    before = {family: evidence.scores(start, family) for family in sorted(recorded)}

    def agreed_score(settings: TrackerSettings, name: str) -> float:
        scores = evidence.scores(settings, families[name])
        losses = np.subtract(before[families[name]], scores)
        return weighted_mean(scores) if losses.max() <= MAX_LOSS else -math.inf

    chosen = tune(agreed_score, start, grid, MIN_GAIN)
    for family, old in before.items():
        logger.info(
            "%s: %s -> %s", family, np.round(old, 3), np.round(evidence.scores(chosen, family), 3)
        )
    return chosen


def labelling_score(pieces: PredictedPassages, settings: TrackerSettings) -> float:
    """Return the mean instrument accuracy over the families plus PEDAL_WEIGHT times the pedal F1.
    The pedal F1 is the mean of two values: the F1 of frames with the pedal up, and the F1 of frames
    with the pedal down. The second alone would be high for a detector that always returns "down".
    """
    accuracy, overall = [], FamilyCounts()
    for of_family in pieces.values():
        counts = FamilyCounts()
        for piece in of_family:
            detected = piece.detect(settings)
            for target in (counts, overall):
                target.add(piece.passage, detected.notes, detected.pedal)
        accuracy.append(counts.accuracy)
    return float(np.mean(accuracy)) + PEDAL_WEIGHT * float(np.mean(overall.pedal_f1))


def tune(
    objective: Callable[[TrackerSettings, str], float],
    start: TrackerSettings,
    grid: Grid,
    min_gain: float = 0.0,
) -> TrackerSettings:
    """Return the best settings that a search along each coordinate of a grid finds. Invalid
    combinations are skipped. The second argument of ``objective`` is the entry of the grid that
    differs. Results of ``objective`` need only be comparable for the same entry."""
    best, seen = start, [start]
    standing: dict[str, float] = {}  # score of the best settings, by entry

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
        score = objective(candidate, name)
        if score <= standing[name] + min_gain:
            return False
        best, standing = candidate, {name: score}
        return True

    for round_number in range(ROUNDS):
        before = best
        for name, values in grid.items():
            if round_number == 0:
                for value in values[WIDE_STEP // 2 :: WIDE_STEP]:
                    improves(name, value)
            improved = True
            while improved:
                at = int(np.abs(np.subtract(values, value_of(best, name))).argmin())
                nearby = values[max(0, at - REACH) : at + REACH + 1]
                improved = any([improves(name, value) for value in nearby])
            logger.info("%s %s: %.4f", name, value_of(best, name), standing.get(name, math.nan))
        if best is before:
            break
    return best


def value_of(settings: TrackerSettings, entry: str) -> Any:
    """Return the current value of an entry of a grid. An entry of a family has the value of the
    family's first class, or the shared value if the class has no value."""
    name, _, family = entry.partition(".")
    value = getattr(settings, name)
    if not family:
        return value
    shared = settings.onset_threshold if name == "onset_thresholds" else settings.end_bias
    return value.get(FAMILIES[family].classes[0], shared)


def with_value(settings: TrackerSettings, entry: str, value: Any) -> TrackerSettings:
    """Return the settings with a new value of an entry of a grid."""
    name, _, family = entry.partition(".")
    if family:
        value = {**getattr(settings, name), **dict.fromkeys(FAMILIES[family].classes, value)}
    return replace(settings, **{name: value})


def correction_frames(pieces: PredictedPassages, settings: TrackerSettings) -> float:
    """Return the value of ``onset_correction_frames`` for which the median onset error, averaged
    over the families, is 0. It is limited to MAX_CORRECTION and rounded to a tenth."""
    bare = replace(settings, onset_correction_frames=0.0)
    medians = []
    for of_family in pieces.values():
        late_s: list[float] = []
        for piece in of_family:
            detected = piece.detected_notes(bare)
            rows, columns = matched_onsets(piece.truth.notes, detected).T
            late_s.extend(detected.onset[columns] - piece.truth.notes.onset[rows])
        if late_s:
            medians.append(float(np.median(late_s)) / (HOP / SAMPLE_RATE))
    late = float(np.mean(medians)) if medians else 0.0
    correction = min(MAX_CORRECTION, max(-MAX_CORRECTION, -late))
    return round(correction, 1) + 0.0  # adding 0.0 turns -0.0 into 0.0
