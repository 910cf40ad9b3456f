"""Choose how sure early notes must be: ``python -m training.shipping.early --write``.

Uses validation passages only, like ``training.shipping.tune``, whose settings stay. For each age of
a frame it gathers all onset peaks of that age, and by how much the log-odds of each exceed those of
the onset threshold that its passage's instruments have. What is added at an age is the least excess
above which at most a share of NEW_FALSE are new false notes: no note begins there, and the full
look-ahead would find none either. So early notes are almost as rarely false as late ones. It never
rises with age.
"""

import logging
import sys
from collections import Counter
from dataclasses import replace
from itertools import chain
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import logit

from model.config import INSTRUMENTS
from model.transcriber import TranscriptionModel
from service.engine.local import LocalComputer
from service.notes.anytime import AnytimeTracker
from service.notes.tracker_settings import MAX_ODDS, TrackerSettings
from training.music.families import Passage
from training.music.metrics import ONSET_TOLERANCE_S
from training.music.notes import nearest
from training.music.synth.config import SynthConfig
from training.shipping.pieces import (
    chosen_passages,
    full_age,
    listened,
    run_windows,
    truth_of,
)
from training.shipping.tune import TuningPart, command

logger = logging.getLogger(__name__)

NEW_FALSE = 0.03
_NEAR_FRAMES = 4  # within this distance, a note at the full look-ahead is the same


class OnsetPeaks(NamedTuple):
    """Onset peaks of all ages in one piece; columns of equal length."""

    age: NDArray[np.int64]
    """Frames from the peak to the newest frame of its window."""
    excess: NDArray[np.float64]
    """Log-odds above those of the passage's onset threshold."""
    false: NDArray[np.bool_]
    """No note begins there."""
    new: NDArray[np.bool_]
    """The full look-ahead would find no note there either."""
    note: NDArray[np.int64]
    """The written note that begins there, counted over all pieces; -1 if none does."""
    waited: NDArray[np.float64]
    """Frames from that note's time to the newest frame of the window."""


def choose(peaks: OnsetPeaks, settings: TrackerSettings, last_age: int) -> TrackerSettings:
    """The settings with ``early_odds`` and ``usual_onset_age``."""
    odds: list[float] = []
    least = 0.0
    for age in range(last_age - 1, -1, -1):
        of_age = peaks.age == age
        new_false = (peaks.false & peaks.new)[of_age]
        least = max(least, lowest_excess(peaks.excess[of_age], new_false))
        odds.insert(0, least)
    chosen = replace(settings, early_odds=tuple(odds))
    needed = np.array([*odds, 0.0])[peaks.age]
    sent = (peaks.excess >= needed) & (peaks.note >= 0)
    first: dict[int, float] = {}
    for note, waited in zip(peaks.note[sent].tolist(), peaks.waited[sent], strict=True):
        first[note] = min(waited, first.get(note, np.inf))
    if not first:
        return chosen
    return replace(chosen, usual_onset_age=round(float(np.median(list(first.values()))), 2))


def lowest_excess(excess: NDArray[np.float64], bad: NDArray[np.bool_]) -> float:
    """The lowest, in steps of 0.1, above which at most NEW_FALSE of the peaks are bad; MAX_ODDS if
    there is none."""
    order = np.argsort(-excess, kind="stable")
    share = np.cumsum(bad[order]) / np.arange(1, len(order) + 1)
    good = np.flatnonzero(share <= NEW_FALSE)
    if not len(good):
        return MAX_ODDS
    return min(MAX_ODDS, max(0.0, round(float(np.ceil(10 * excess[order[good[-1]]]) / 10), 1)))


def gather(
    computer: LocalComputer, passage: Passage, settings: TrackerSettings, notes: int
) -> OnsetPeaks:
    """The peaks of a passage; ``notes``: labelled in earlier ones."""
    truth = truth_of(passage)
    frame_s = truth.frame_s
    last_age = full_age(computer.config)
    heads = computer.config.outputs
    tracker = AnytimeTracker(settings, frame_s, heads, last_age)
    peaks: list[tuple[int, int, int, float]] = []  # newest frame, row, pitch, probability
    full: list[NDArray[np.float32]] = []

    def take(newest: int, window: NDArray[np.float32]) -> None:
        peaks.extend((newest, *peak) for peak in tracker.onset_peaks(window))
        full.append(window[:, tracker.columns - 1 - last_age].copy())

    run_windows(computer, passage.audio, tracker.columns, last_age, take)
    late = listened(settings, np.stack(full[last_age:], axis=1), frame_s, heads)
    table = np.array(peaks).reshape(-1, 4)
    newest, row, pitch = (table[:, column].astype(int) for column in range(3))
    age = last_age - row
    frame = newest - age
    kept = (frame >= 0) & (frame < len(full) - last_age)
    kept[kept] &= truth.knows(frame[kept] * frame_s, pitch[kept])
    newest, age, pitch, frame, probability = (
        column[kept] for column in (newest, age, pitch, frame, table[:, 3])
    )
    # As once the belief is sure of who plays.
    players = Counter(INSTRUMENTS[n] for n in truth.notes.instrument.tolist() if n >= 0)
    threshold = settings.onset_threshold_for(players)
    excess = logit(np.clip(probability, 1e-6, 1 - 1e-6)) - logit(threshold)
    onset_s = truth.notes.onset_s
    note = nearest(onset_s, truth.notes.pitch, frame * frame_s, pitch, ONSET_TOLERANCE_S)
    near_s = (_NEAR_FRAMES + 0.5) * frame_s
    same = nearest(late.onset_s, late.pitch, frame * frame_s, pitch, near_s)
    waited = newest - onset_s[note] / frame_s if len(onset_s) else newest.astype(float)
    at_least = excess >= 0
    return OnsetPeaks(
        age[at_least],
        excess[at_least],
        note[at_least] < 0,
        same[at_least] < 0,
        np.where(note < 0, -1, note + notes)[at_least],
        waited[at_least],
    )


def early_settings(
    transcriber: TranscriptionModel, synth: SynthConfig, count: int, seconds: float
) -> TrackerSettings:
    """The card's settings with what early notes need, from this many passages of each family."""
    settings = TrackerSettings.from_card(transcriber.card)
    passages = list(chain.from_iterable(chosen_passages(synth, count, seconds).values()))
    parts: list[OnsetPeaks] = []
    notes = 0
    with LocalComputer(transcriber) as computer:
        for passage in passages:
            parts.append(gather(computer, passage, settings, notes))
            notes += len(passage.notes)
            logger.info("passage %d of %d", len(parts), len(passages))
    peaks = OnsetPeaks(*map(np.concatenate, zip(*parts, strict=True)))
    return choose(peaks, settings, full_age(transcriber.config))


PART = TuningPart(early_settings, pieces=2, seconds=10.0, heads=frozenset({"onset"}))


def main(arguments: list[str] | None = None) -> int:
    return command("training.shipping.early", __doc__, PART, arguments)


if __name__ == "__main__":
    sys.exit(main())
