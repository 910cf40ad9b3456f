"""How sure early notes of the anytime mode must be, chosen on passages of every family.

For each age of a frame it gathers all onset peaks of that age, and by how much the log-odds of each
exceed those of the onset threshold that its passage's instruments have. What is added at an age is
the least excess above which at most a share of NEW_FALSE are new false notes: no note begins there,
and the full look-ahead would find none either. So early notes are almost as rarely false as late
ones. It never rises with age.
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
from training.music.families import Passage, validation_passages
from training.music.metrics import ONSET_TOLERANCE_S, estimated_notes
from training.music.notes import nearest
from training.music.synth.config import SynthConfig
from training.shipping.evidence import STREAM, detect_notes
from training.shipping.tune import SEED

NEW_FALSE = 0.03
_NEAR_FRAMES = 4  # within this distance, a note at the full look-ahead is the same


class OnsetPeaks(NamedTuple):
    """Onset peaks of all ages; columns of equal length."""

    age: I64  # frames from the peak to the newest frame of its window
    excess: F64  # log-odds above those of the passage's onset threshold
    new_false: Bools  # no note begins there, nor would the full look-ahead find one
    note: I64  # the written note that begins there, counted over all pieces; -1 if none does
    waited: F64  # frames from that note's time to the newest frame of the window


def choose(peaks: OnsetPeaks, settings: TrackerSettings, last_age: int) -> TrackerSettings:
    """The settings with ``early_odds`` and ``usual_onset_age``."""
    odds: list[float] = []
    least = 0.0
    for age in range(last_age - 1, -1, -1):
        of_age = peaks.age == age
        least = max(least, lowest_excess(peaks.excess[of_age], peaks.new_false[of_age]))
        odds.insert(0, least)
    chosen = replace(settings, early_odds=tuple(odds))
    needed = np.array([*odds, 0.0])[peaks.age]
    sent = (peaks.excess >= needed) & (peaks.note >= 0)
    if not sent.any():
        return chosen
    first = np.full(peaks.note.max() + 1, np.inf)
    np.minimum.at(first, peaks.note[sent], peaks.waited[sent])
    return replace(chosen, usual_onset_age=round(float(np.median(first[first < np.inf])), 2))


def lowest_excess(excess: F64, bad: Bools) -> float:
    """In steps of 0.1, above which at most NEW_FALSE of the peaks are bad; at most MAX_ODDS."""
    order = np.argsort(-excess, kind="stable")
    share = np.cumsum(bad[order]) / np.arange(1, len(order) + 1)
    good = np.flatnonzero(share <= NEW_FALSE)
    if not len(good):
        return MAX_ODDS
    return min(MAX_ODDS, max(0.0, round(float(np.ceil(10 * excess[order[good[-1]]]) / 10), 1)))


def gather(
    engine: LocalEngine, passage: Passage, settings: TrackerSettings, notes: int
) -> OnsetPeaks:
    """The peaks of a passage; ``notes``: labelled in earlier ones."""
    truth = truth_of(passage)
    frame_s = truth.frame_s
    last_age = full_lookahead_age(engine.config)
    heads = engine.config.outputs
    tracker = AnytimeTracker(settings, frame_s, heads, last_age)
    peaks: list[tuple[int, int, int, float]] = []  # newest frame, row, pitch, probability
    full: list[F32] = []
    for newest, window in every_window(engine, passage.audio, tracker.columns, last_age):
        peaks.extend((newest, *peak) for peak in tracker.onset_peaks(window))
        full.append(window[:, tracker.columns - 1 - last_age].copy())
    late = estimated_notes(
        detect_notes(settings, np.stack(full[last_age:], axis=1), frame_s, heads).notes
    )
    table = np.array(peaks).reshape(-1, 4)
    # As once the belief is sure of who plays.
    players = Counter(INSTRUMENTS[n] for n in truth.notes.instrument.tolist() if n >= 0)
    threshold = settings.onset_threshold_for(players)
    excess = logit(np.clip(table[:, 3], 1e-6, 1 - 1e-6)) - logit(threshold)
    ends, rows, pitches = table[:, :3].astype(int).T
    frames = ends - last_age + rows
    kept = (frames >= 0) & (frames < len(full) - last_age) & (excess >= 0)
    kept[kept] &= truth.is_labelled(frames[kept] * frame_s, pitches[kept])
    end, row, pitch, frame = (column[kept] for column in (ends, rows, pitches, frames))
    onset_s = truth.notes.onset
    note = nearest(onset_s, truth.notes.pitch, frame * frame_s, pitch, ONSET_TOLERANCE_S)
    near_s = (_NEAR_FRAMES + 0.5) * frame_s
    same = nearest(late.onset, late.pitch, frame * frame_s, pitch, near_s)
    return OnsetPeaks(
        age=last_age - row,
        excess=excess[kept],
        new_false=(note < 0) & (same < 0),
        note=np.where(note < 0, -1, note + notes),
        waited=end - onset_s[note] / frame_s if len(onset_s) else end.astype(float),
    )


def full_lookahead_age(config: ModelConfig) -> int:
    """The age in frames at which the anytime mode has a frame's full look-ahead."""
    return STREAM.lookahead_hops(config.sample_rate) - config.min_lookahead_hops


def every_window(
    engine: LocalEngine, audio: F32, columns: int, last_age: int
) -> Iterator[tuple[int, F32]]:
    """The newest frame and the probabilities, [heads, columns, PITCHES], of each window in anytime
    mode: of audio at the model's rate, a window every hop."""
    schedule = WindowSchedule(engine.config.min_lookahead_hops, 1, columns - 1, last_age)
    features = engine.open_stream(schedule.positions)
    frames, blocks = schedule.frames(len(audio)), schedule.blocks(len(audio))
    after = np.zeros(schedule.end_sample(blocks - 1) - len(audio), np.float32)
    padded = np.concatenate([np.zeros(WINDOW, np.float32), audio, after])
    for block in range(blocks):
        end = schedule.end_sample(block)  # in the audio; a window later in what is padded
        due = PendingWindows(padded[end : end + WINDOW], 1, 1, schedule.positions)
        (heard,) = engine.compute(features, due)
        yield block, heard[:, : max(0, frames - block + columns - 1)]


def anytime_settings(
    transcriber: TranscriptionModel,
    synth: SynthConfig,
    count: int,
    seconds: float,
    _: Path | None = None,
) -> TrackerSettings:
    """Return the card's settings with the log-odds that early notes need, chosen on ``count``
    passages of each family, ``seconds`` long."""
    settings = TrackerSettings.from_card(transcriber.card)
    families = validation_passages(synth, count, seconds, SEED)
    parts: list[OnsetPeaks] = []
    notes = 0
    with LocalEngine(transcriber) as engine:
        for passage in tqdm([*chain(*families.values())], unit="passage"):
            parts.append(gather(engine, passage, settings, notes))
            notes += len(passage.notes)
    peaks = OnsetPeaks(*map(np.concatenate, zip(*parts, strict=True)))
    return choose(peaks, settings, full_lookahead_age(transcriber.config))
