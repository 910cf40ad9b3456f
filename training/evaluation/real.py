"""Scores recordings with note labels through the service's own pipeline.

Audio is resampled, cut into windows, transcribed and tracked by the service's streaming code, so
the figures are those of a live stream with the same look-ahead. Nothing is tuned here.

A recording that cannot be read or transcribed, or whose labels mostly lie beyond its end, is
reported and listed in the collection's ``failures``; it does not stop the others.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.stats import bootstrap

from model.config import HOP
from service.audio.pcm import BadAudioError
from service.engine.local import LocalComputer
from service.engine.runners import EngineModel
from service.protocol.faults import ProtocolError
from service.protocol.options import StreamOptions
from service.stream.windows import EngineError
from training.arrays import F32, F64
from training.music.metrics import (
    DEFINITIONS,
    estimated_notes,
    matched_onsets,
    note_on_delays,
    recording_metrics,
)
from training.music.notes import Notes
from training.music.recordings import AudioError, Collection, Recording, read_audio
from training.music.transcribe import transcribe_array

END_TOLERANCE_S = 1.0  # by which labels may begin after the end of the audio

Report = dict[str, Any]
MakeTranscriber = Callable[[], EngineModel]


class Result(NamedTuple):
    """The scores of one recording with one way of streaming."""

    figures: dict[str, float]  # some of ``metrics.DEFINITIONS``
    onset_errors_s: F64  # delays of matched onsets


def evaluate_collection(
    collection: Collection,
    make_transcriber: MakeTranscriber,
    streams: list[StreamOptions],
    label_shift_s: float,
    jobs: int = 1,
) -> list[Report]:
    """A report for each way of streaming; ``failures`` lists what is not scored. Prints a row for
    each recording as it goes, then tables.

    Args:
        make_transcriber: called once for each recording, in one of ``jobs`` processes; picklable.
        label_shift_s: added to the labels' times.
    """
    name = make_transcriber().config.name
    print(f"{collection.name}: {name}, label shift {1000 * label_shift_s:g} ms", flush=True)
    for path in collection.unlabelled:
        print(f"skipped: {path} has no labels with its stem", flush=True)
    for reason in collection.failures.values():
        print(f"not scored: {reason}", flush=True)
    print(row("recording", "look-ahead", {figure: figure for figure in DEFINITIONS}), flush=True)
    results: list[dict[str, Result]] = [{} for _ in streams]
    attempt = partial(_evaluate_recording, make_transcriber, streams, label_shift_s)
    recordings = collection.recordings
    failures = dict(collection.failures)
    threads = max(1, (os.cpu_count() or 1) // max(1, jobs))
    with ProcessPoolExecutor(jobs, get_context("spawn"), torch.set_num_threads, (threads,)) as pool:
        outcomes = (pool.map if jobs > 1 else map)(attempt, recordings)
        for recording, outcome in zip(recordings, outcomes, strict=True):
            if isinstance(outcome, str):
                failures[recording.name] = outcome
                print(f"not scored: {outcome}", flush=True)
                continue
            for options, result, so_far in zip(streams, outcome, results, strict=True):
                so_far[recording.name] = result
                lookahead = f"{options.lookahead_ms:g} ms"
                print(row(recording.name, lookahead, result.figures), flush=True)
    reports = []
    for options, so_far in zip(streams, results, strict=True):
        summary = report(so_far)
        print(f"\nlook-ahead {options.lookahead_ms:g} ms{table(summary)}", flush=True)
        how = {
            "model": name,
            "mode": options.mode.value,
            "lookahead_ms": options.lookahead_ms,
            "block_frames": options.frames_per_window,
            "label_shift_ms": 1000 * label_shift_s,
            "failures": failures,
            "unlabelled": [str(path) for path in collection.unlabelled],
        }
        reports.append(how | summary)
    return reports


def _evaluate_recording(
    make_transcriber: MakeTranscriber,
    streams: list[StreamOptions],
    label_shift_s: float,
    recording: Recording,
) -> list[Result] | str:
    """The scores of a recording, or the reason for none."""
    try:
        samples, rate = read_audio(recording.audio)
    except AudioError as error:
        return str(error)
    reference = recording.notes.shifted(label_shift_s)
    beyond = reference.onset > len(samples) / rate + END_TOLERANCE_S
    if beyond.sum() > len(beyond) / 2:
        return f"{recording.name}: most labels begin after the end of the audio: not in seconds?"
    out = []
    with LocalComputer(make_transcriber()) as computer:
        frame_s = HOP / computer.config.sample_rate
        for options in streams:
            try:
                heard = transcribe_array(samples, rate, computer, options)
            except (BadAudioError, ProtocolError, EngineError) as error:
                return f"{recording.audio}: {error}"
            notes, probabilities = estimated_notes(heard.notes), heard.frame_probabilities
            out.append(score(reference, notes, probabilities, frame_s, heard.known_s))
    return out


def score(
    reference: Notes,
    estimated: Notes,
    probabilities: F32,
    frame_s: float,
    known_s: F64 | None = None,
) -> Result:
    """All scores of one transcription. probabilities: (frames, PITCHES); known_s: as in
    ``note_on_delays``, None if unknown."""
    matched = matched_onsets(reference, estimated)
    figures = recording_metrics(reference, estimated, matched, probabilities, frame_s)
    if known_s is not None:
        figures |= note_on_delays(reference, matched, known_s)
    return Result(figures, estimated.onset[matched[:, 1]] - reference.onset[matched[:, 0]])


def interval(values: Sequence[float]) -> tuple[float, float] | None:
    """95 % bootstrap interval of the mean over recordings; None for fewer than two. The same values
    give the same interval."""
    if len(values) < 2:
        return None
    found = bootstrap((values,), np.mean, method="percentile", rng=0).confidence_interval
    return float(found.low), float(found.high)


def report(results: Mapping[str, Result]) -> Report:
    """Plain values: ``recordings`` holds the figures of each, those that it has; ``mean`` and
    ``interval`` those over recordings."""
    by_figure = {
        name: [r.figures[name] for r in results.values() if name in r.figures]
        for name in DEFINITIONS
    }
    values = {name: found for name, found in by_figure.items() if found}
    late_ms = 1000 * np.concatenate([np.zeros(0), *(r.onset_errors_s for r in results.values())])
    quartiles = np.percentile(late_ms, [25, 50, 75]).tolist() if len(late_ms) else [None] * 3
    return {
        "recordings": {name: result.figures for name, result in results.items()},
        "mean": {name: float(np.mean(found)) for name, found in values.items()},
        "interval": {name: interval(found) for name, found in values.items()},
        "onset_error_ms": {"median": quartiles[1], "quartiles": quartiles[::2]},
        "definitions": {name: DEFINITIONS[name] for name in values},
    }


def table(report: Report) -> str:
    """The means with their intervals and the timing, as text."""
    lines = ["", f"{'':24}{'mean':>8}    95 % interval over {len(report['recordings'])} recordings"]
    for name, value in report["mean"].items():
        ends = report["interval"][name]
        between = f"{ends[0]:.3f} to {ends[1]:.3f}" if ends else "-"
        lines.append(f"{name:24}{value:8.3f}    {between}")
    if (median := report["onset_error_ms"]["median"]) is not None:
        lines.append(f"matched onsets: {median:+.1f} ms in the median (positive: late)")
    return "\n".join(lines)


def row(name: str, lookahead: str, figures: Mapping[str, Any]) -> str:
    """One recording's line; give the names of the figures for the line above all."""
    cells = [figures.get(name, "") for name in DEFINITIONS]
    texts = [f"{cell:.3f}" if isinstance(cell, float) else cell for cell in cells]
    return f"{name:34}{lookahead:>10}" + "".join(f"{text:>22}" for text in texts)
