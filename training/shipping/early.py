"""Choose the thresholds by age of the anytime mode: ``python -m training.shipping.early --write``.

Uses validation material only, like ``training.shipping.tune``, whose settings stay. For each age of
a frame it gathers all onset peaks of that age; T(a) is the lowest threshold above which at most a
share of NEW_FALSE are new false notes: no note begins there, and the full look-ahead would find
none either. So early notes are almost as rarely false as late ones. T never rises with age.
"""

import logging
import sys
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from model.config import HOP
from model.transcriber import TranscriptionModel
from service.engine.engine import Engine
from service.notes.anytime import AnytimeTracker
from service.notes.tracker_settings import TrackerSettings
from training.music.metrics import ONSET_TOLERANCE_S
from training.music.notes import nearest
from training.music.synth.config import SynthConfig
from training.shipping.pieces import (
    Truth,
    full_age,
    recorded_material,
    rendered_material,
    run_windows,
    tracked,
)
from training.shipping.tune import SEED, Chooser, command

logger = logging.getLogger(__name__)

NEW_FALSE = 0.03
_NEAR_FRAMES = 4  # within this distance, a note at the full look-ahead is the same


class OnsetPeaks(NamedTuple):
    """Onset peaks of all ages in one piece; columns of equal length."""

    age: NDArray[np.int64]
    """Frames from the peak to the newest frame of its window."""
    probability: NDArray[np.float64]
    false: NDArray[np.bool_]
    """No note begins there."""
    new: NDArray[np.bool_]
    """The full look-ahead would find no note there either."""
    note: NDArray[np.int64]
    """The written note that begins there, counted over all pieces; -1 if none does."""
    waited: NDArray[np.float64]
    """Frames from that note's time to the newest frame of the window."""


def choose(peaks: OnsetPeaks, settings: TrackerSettings, last_age: int) -> TrackerSettings:
    """The settings with ``early_onset_thresholds`` and ``usual_onset_age``."""
    thresholds: list[float] = []
    least = settings.onset_threshold
    for age in range(last_age - 1, -1, -1):
        of_age = peaks.age == age
        new_false = (peaks.false & peaks.new)[of_age]
        least = max(least, lowest_threshold(peaks.probability[of_age], new_false))
        thresholds.insert(0, least)
    chosen = replace(settings, early_onset_thresholds=tuple(thresholds))
    needed = np.array([*thresholds, settings.onset_threshold])[peaks.age]
    sent = (peaks.probability >= needed) & (peaks.note >= 0)
    first: dict[int, float] = {}
    for note, waited in zip(peaks.note[sent].tolist(), peaks.waited[sent], strict=True):
        first[note] = min(waited, first.get(note, np.inf))
    if not first:
        return chosen
    return replace(chosen, usual_onset_age=round(float(np.median(list(first.values()))), 2))


def lowest_threshold(probability: NDArray[np.float64], bad: NDArray[np.bool_]) -> float:
    """The lowest, in steps of 0.01, above which at most NEW_FALSE of the peaks are bad; 1 if there
    is none."""
    order = np.argsort(-probability, kind="stable")
    share = np.cumsum(bad[order]) / np.arange(1, len(order) + 1)
    good = np.flatnonzero(share <= NEW_FALSE)
    if not len(good):
        return 1.0
    return min(1.0, round(float(np.ceil(round(100 * probability[order[good[-1]]], 6)) / 100), 2))


def gather(
    engine: Engine, audio: NDArray[np.float32], truth: Truth, settings: TrackerSettings, notes: int
) -> OnsetPeaks:
    """The peaks of a piece, [samples] at the model's rate; ``notes``: written in earlier pieces."""
    frame_s = HOP / engine.config.sample_rate
    last_age = full_age(engine.config)
    tracker = AnytimeTracker(settings, frame_s, engine.config.outputs, last_age)
    peaks: list[tuple[int, int, int, float]] = []  # newest frame, age, pitch, probability
    full: list[NDArray[np.float32]] = []

    def take(newest: int, window: NDArray[np.float32]) -> None:
        peaks.extend((newest, *peak) for peak in tracker.onset_peaks(window))
        full.append(window[:, tracker.columns - 1 - last_age].copy())

    run_windows(engine, audio, tracker.columns, last_age, take)
    late = tracked(settings, np.stack(full[last_age:], axis=1), frame_s, engine.config.outputs)
    table = np.array(peaks).reshape(-1, 4)
    newest, age, pitch = (table[:, column].astype(int) for column in range(3))
    frame = newest - age
    kept = (frame >= 0) & (frame < len(full) - last_age)
    kept[kept] &= truth.knows(frame[kept] * frame_s, pitch[kept])
    newest, age, pitch, frame, probability = (
        column[kept] for column in (newest, age, pitch, frame, table[:, 3])
    )
    onset_s = truth.notes.onset_s
    note = nearest(onset_s, truth.notes.pitch, frame * frame_s, pitch, ONSET_TOLERANCE_S)
    near_s = (_NEAR_FRAMES + 0.5) * frame_s
    same = nearest(late.onset_s, late.pitch, frame * frame_s, pitch, near_s)
    waited = newest - onset_s[note] / frame_s if len(onset_s) else newest.astype(float)
    return OnsetPeaks(
        age, probability, note < 0, same < 0, np.where(note < 0, -1, note + notes), waited
    )


def early_settings(
    transcriber: TranscriptionModel, synth: SynthConfig, pieces: int, seconds: float
) -> TrackerSettings:
    """The card's settings with thresholds by age, from rendered pieces and, if ``synth.real_root``
    is given, real recordings.

    pieces: number of rendered pieces; seconds: length of each, and of each recording.
    """
    settings = TrackerSettings.from_card(transcriber.card)
    rate = transcriber.config.sample_rate
    rendered = rendered_material(synth, rate, pieces, seconds, SEED)
    length = int(seconds * rate) // HOP * HOP
    recorded = recorded_material(synth, rate, length, SEED, "validation", elsewhere=False)
    material = [*rendered, *recorded]
    parts: list[OnsetPeaks] = []
    notes = 0
    with Engine(transcriber) as engine:
        for audio, truth in material:
            parts.append(gather(engine, audio, truth, settings, notes))
            notes += len(truth.notes)
            logger.info("piece %d of %d", len(parts), len(material))
    peaks = OnsetPeaks(*map(np.concatenate, zip(*parts, strict=True)))
    return choose(peaks, settings, full_age(transcriber.config))


CHOOSER = Chooser(early_settings, pieces=8, seconds=20.0, heads=frozenset({"onset"}))


def main(arguments: list[str] | None = None) -> int:
    return command("training.shipping.early", __doc__, CHOOSER, arguments)


if __name__ == "__main__":
    sys.exit(main())
