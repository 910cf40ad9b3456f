"""Chooses the thresholds of early notes in anytime mode, on passages of every family.

The excess of an onset peak is the difference between its log-odds and those of the onset threshold
for the instruments of its passage. A peak is a new false note if no labelled note starts there, and
if the tracker would not start a note there with the full look-ahead. ``early_odds`` of an age is
the lowest excess above which at most NEW_FALSE of the peaks of this age are new false notes. Early
notes are therefore only slightly more often false than late notes. ``early_odds`` never rise with
age.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.special import logit
from tqdm import tqdm

from model.config import INSTRUMENTS, WINDOW, ModelConfig
from model.transcriber import TranscriptionModel
from service.engine.local import LocalEngine
from service.notes.anytime import AnytimeTracker
from service.notes.tracker_settings import MAX_ODDS, TrackerSettings
from service.stream.windows import PendingWindows, WindowSchedule
from training.arrays import F32, F64, I64, Bools
from training.evaluation.truth import truth_of
from training.music.families import Passage
from training.music.metrics import ONSET_TOLERANCE_S, estimated_notes
from training.music.notes import FRAME_S, nearest
from training.shipping.evidence import STREAM, detect_notes
from training.shipping.tune import DrawPassages

NEW_FALSE = 0.03  # maximum share of new false notes among early notes
_NEAR_FRAMES = 4  # maximum distance, in frames, from a peak to its note with the full look-ahead


class OnsetPeaks(NamedTuple):
    """Onset peaks of all ages, as columns of equal length."""

    age: I64  # frames from the peak to the newest frame of its window
    excess: F64  # log-odds above those of the passage's onset threshold
    new_false: Bools  # true for new false notes
    note: I64  # number, over all passages, of the labelled note that starts there; -1 for none
    waited: F64  # frames from the onset of the note to the newest frame of the window


def choose(peaks: OnsetPeaks, settings: TrackerSettings, last_age: int) -> TrackerSettings:
    """Return the settings with new ``early_odds`` and ``usual_onset_age``. last_age: age of the
    full look-ahead, in frames."""
    odds: list[float] = []
    minimum = 0.0
    for age in range(last_age - 1, -1, -1):
        of_age = peaks.age == age
        minimum = max(minimum, lowest_excess(peaks.excess[of_age], peaks.new_false[of_age]))
        odds.insert(0, minimum)
    chosen = replace(settings, early_odds=tuple(odds))
    needed = np.array([*odds, 0.0])[peaks.age]
    sent = (peaks.excess >= needed) & (peaks.note >= 0)
    if not sent.any():
        return chosen
    first = np.full(peaks.note.max() + 1, np.inf)
    np.minimum.at(first, peaks.note[sent], peaks.waited[sent])
    return replace(chosen, usual_onset_age=round(float(np.median(first[first < np.inf])), 2))


def lowest_excess(excess: F64, bad: Bools) -> float:
    """Return the lowest excess, in steps of 0.1 and at most MAX_ODDS, above which at most NEW_FALSE
    of the peaks are bad."""
    order = np.argsort(-excess, kind="stable")
    share = np.cumsum(bad[order]) / np.arange(1, len(order) + 1)
    good = np.flatnonzero(share <= NEW_FALSE)
    if not len(good):
        return MAX_ODDS
    return min(MAX_ODDS, max(0.0, round(float(np.ceil(10 * excess[order[good[-1]]]) / 10), 1)))


def gather(
    engine: LocalEngine, passage: Passage, settings: TrackerSettings, first_note: int
) -> OnsetPeaks:
    """Return a passage's peaks whose label is certain and whose excess is not negative.
    first_note: number of labelled notes in earlier passages."""
    truth = truth_of(passage)
    cells, probability, full = _predicted_peaks(engine, passage, settings)
    newest, frame, pitch = cells.T
    # The threshold that applies once the tracker has recognised the instruments.
    counts = Counter(INSTRUMENTS[n] for n in truth.notes.instrument.tolist() if n >= 0)
    threshold = settings.onset_threshold_for(counts)
    excess = logit(np.clip(probability, 1e-6, 1 - 1e-6)) - logit(threshold)
    selected = (frame >= 0) & (frame < full.shape[1]) & (excess >= 0)
    selected[selected] &= truth.is_labelled(frame[selected] * FRAME_S, pitch[selected])
    newest, frame, pitch = cells[selected].T
    peak_s, onset_s = frame * FRAME_S, truth.notes.onset
    note = nearest(onset_s, truth.notes.pitch, peak_s, pitch, ONSET_TOLERANCE_S)
    late = estimated_notes(detect_notes(settings, full, engine.config.outputs).notes)
    late_note = nearest(late.onset, late.pitch, peak_s, pitch, (_NEAR_FRAMES + 0.5) * FRAME_S)
    return OnsetPeaks(
        age=newest - frame,
        excess=excess[selected],
        new_false=(note < 0) & (late_note < 0),
        note=np.where(note < 0, -1, note + first_note),
        waited=newest - onset_s[note] / FRAME_S if len(onset_s) else newest.astype(float),
    )


def _predicted_peaks(
    engine: LocalEngine, passage: Passage, settings: TrackerSettings
) -> tuple[I64, F64, F32]:
    """Compute every window of a passage in mode ``anytime``.

    Returns:
        The newest frame of the window, the frame and the pitch of each onset peak, [n, 3].
        The probability of each onset peak, [n].
        The probabilities with the full look-ahead, [heads, frames, PITCHES].
    """
    last_age = full_lookahead_age(engine.config)
    tracker = AnytimeTracker(settings, FRAME_S, engine.config.outputs, last_age)
    oldest = tracker.columns - 1 - last_age  # column of the frame with the full look-ahead
    peaks: list[tuple[int, int, int, float]] = []
    full: list[F32] = []
    for newest, window in every_window(engine, passage.audio, tracker.columns, last_age):
        for row, pitch, probability in tracker.onset_peaks(window):
            peaks.append((newest, newest - last_age + row, pitch, probability))
        full.append(window[:, oldest].copy())
    table = np.array(peaks).reshape(-1, 4)
    return table[:, :3].astype(np.int64), table[:, 3], np.stack(full[last_age:], axis=1)


def full_lookahead_age(config: ModelConfig) -> int:
    """Return the age, in frames, at which a frame has its full look-ahead in mode ``anytime``."""
    return STREAM.lookahead_hops(config.sample_rate) - config.min_lookahead_hops


def every_window(
    engine: LocalEngine, audio: F32, columns: int, last_age: int
) -> Iterator[tuple[int, F32]]:
    """Yield the newest frame and the probabilities, [heads, columns, PITCHES], of each window in
    mode ``anytime``, one window per hop. The last windows have fewer columns, because frames after
    the end of the audio are omitted. audio: samples at the model's rate."""
    schedule = WindowSchedule(engine.config.min_lookahead_hops, 1, columns - 1, last_age)
    features = engine.open_stream()
    frames, blocks = schedule.frames(len(audio)), schedule.blocks(len(audio))
    after = np.zeros(schedule.end_sample(blocks - 1) - len(audio), np.float32)
    padded = np.concatenate([np.zeros(WINDOW, np.float32), audio, after])
    for block in range(blocks):
        end = schedule.end_sample(block)  # end of the window in `audio`, and its start in `padded`
        pending = PendingWindows(padded[end : end + WINDOW], 1, 1, schedule.positions)
        (probabilities,) = engine.compute(features, pending)
        yield block, probabilities[:, : max(0, frames - block + columns - 1)]


def anytime_settings(
    transcriber: TranscriptionModel, draw_passages: DrawPassages, _: Path | None
) -> TrackerSettings:
    """Return the card's settings with new ``early_odds`` and ``usual_onset_age``."""
    settings = TrackerSettings.from_card(transcriber.card)
    parts: list[OnsetPeaks] = []
    notes = 0
    with LocalEngine(transcriber) as engine:
        for passage in tqdm([*chain(*draw_passages().values())], unit="passage"):
            parts.append(gather(engine, passage, settings, notes))
            notes += len(passage.notes)
    peaks = OnsetPeaks(*map(np.concatenate, zip(*parts, strict=True)))
    return choose(peaks, settings, full_lookahead_age(transcriber.config))
