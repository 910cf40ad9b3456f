"""Evaluates recordings that have note labels.

The service's stream transcribes them, so the figures also apply to a live stream with the same
look-ahead. A recording fails if it cannot be read or transcribed, or if most of its labels are
after the end of its audio. The report lists these recordings in ``failures``.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context, parent_process
from threading import Thread
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.stats import bootstrap

from model.config import HOP
from service.audio.pcm import BadAudioError
from service.engine.local import LocalEngine
from service.engine.runners import EngineModel
from service.protocol.errors import ProtocolError
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

END_TOLERANCE_S = 1.0  # maximum time of a labelled onset after the end of the audio

Report = dict[str, Any]
MakeTranscriber = Callable[[], EngineModel]


class Result(NamedTuple):
    """Scores of one recording with one set of stream options."""

    figures: dict[str, float]  # keys: a subset of ``metrics.DEFINITIONS``
    onset_errors_s: F64  # detected minus labelled onset of each matched note


def evaluate_collection(
    collection: Collection,
    make_transcriber: MakeTranscriber,
    streams: list[StreamOptions],
    label_shift_s: float,
    jobs: int = 1,
) -> list[Report]:
    """Score a collection and return a report for each of ``streams``. Print the rows
    of the recordings, in their order, while others are still being scored, then tables. They name
    the actual look-ahead, in whole hops within the limits of a stream.

    Args:
        make_transcriber: picklable function that returns the network. It is called once for the
            network's name, and once for each recording that is transcribed: in one of ``jobs``
            processes, or in this process if ``jobs`` is 1.
        label_shift_s: seconds added to the times of the labels.
    """
    config = make_transcriber().config
    name = config.name
    lookaheads_ms = [options.actual_lookahead_ms(config.sample_rate) for options in streams]
    print(f"{collection.name}: {name}, label shift {1000 * label_shift_s:g} ms", flush=True)
    for path in collection.unlabelled:
        print(f"skipped: {path} has no file of labels with the same name", flush=True)
    for reason in collection.failures.values():
        print(f"not scored: {reason}", flush=True)
    print(row("recording", "look-ahead", {figure: figure for figure in DEFINITIONS}), flush=True)
    results: list[dict[str, Result]] = [{} for _ in streams]
    evaluate = partial(_evaluate_recording, make_transcriber, streams, label_shift_s)
    recordings = collection.recordings
    failures = dict(collection.failures)
    jobs = max(1, min(jobs, len(recordings)))
    threads = max(1, (os.cpu_count() or 1) // jobs)
    with ProcessPoolExecutor(jobs, get_context("spawn"), initialise_worker, (threads,)) as pool:
        outcomes = (pool.map if jobs > 1 else map)(evaluate, recordings)
        for recording, outcome in zip(recordings, outcomes, strict=True):
            if isinstance(outcome, str):
                failures[recording.name] = outcome
                print(f"not scored: {outcome}", flush=True)
                continue
            for actual_ms, result, scored in zip(lookaheads_ms, outcome, results, strict=True):
                scored[recording.name] = result
                lookahead = f"{actual_ms:.0f} ms"
                print(row(recording.name, lookahead, result.figures), flush=True)
    reports = []
    for options, actual_ms, scored in zip(streams, lookaheads_ms, results, strict=True):
        summary = report(scored)
        print(f"\nlook-ahead {actual_ms:.0f} ms{table(summary)}", flush=True)
        conditions = {
            "model": name,
            "mode": options.mode.value,
            "lookahead_ms": actual_ms,
            "block_frames": options.frames_per_window,
            "label_shift_ms": 1000 * label_shift_s,
            "failures": failures,
            "unlabelled": [str(path) for path in collection.unlabelled],
        }
        reports.append(conditions | summary)
    return reports


def initialise_worker(threads: int) -> None:
    """Set the number of threads of torch in a worker process, which exits with its parent process.
    Without this, the workers of a killed evaluation would wait for recordings without end."""
    torch.set_num_threads(threads)
    Thread(target=_exit_with_parent, daemon=True).start()


def _exit_with_parent() -> None:
    if (parent := parent_process()) is not None:
        parent.join()
        os._exit(1)


def _evaluate_recording(
    make_transcriber: MakeTranscriber,
    streams: list[StreamOptions],
    label_shift_s: float,
    recording: Recording,
) -> list[Result] | str:
    """Return the results of a recording for each of ``streams``, or an error message."""
    try:
        samples, rate = read_audio(recording.audio)
    except AudioError as error:
        return str(error)
    reference = recording.notes.shifted(label_shift_s)
    beyond = reference.onset > len(samples) / rate + END_TOLERANCE_S
    if beyond.sum() > len(beyond) / 2:
        return f"{recording.name}: most labels are after the end of the audio: are they in seconds?"
    results = []
    with LocalEngine(make_transcriber()) as engine:
        frame_s = HOP / engine.config.sample_rate
        for options in streams:
            try:
                transcription = transcribe_array(samples, rate, engine, options, ("frame",))
            except (BadAudioError, ProtocolError, EngineError) as error:
                return f"{recording.audio}: {error}"
            notes = estimated_notes(transcription.notes)
            probabilities, needed_s = transcription.frame_probabilities, transcription.needed_s
            results.append(score(reference, notes, probabilities, frame_s, needed_s))
    return results


def score(
    reference: Notes,
    estimated: Notes,
    probabilities: F32,
    frame_s: float,
    needed_s: F64 | None = None,
) -> Result:
    """Return all scores of one transcription.

    Args:
        probabilities: frame probabilities, [frames, PITCHES].
        needed_s: see ``note_on_delays``; None omits the delays.
    """
    matched = matched_onsets(reference, estimated)
    figures = recording_metrics(reference, estimated, matched, probabilities, frame_s)
    if needed_s is not None:
        figures |= note_on_delays(reference, matched, needed_s)
    return Result(figures, estimated.onset[matched[:, 1]] - reference.onset[matched[:, 0]])


def interval(values: Sequence[float]) -> tuple[float, float] | None:
    """Return the 95 % bootstrap interval of the mean of values, or None for fewer than two values.
    The interval is deterministic."""
    if len(values) < 2:
        return None
    ends = bootstrap((values,), np.mean, method="percentile", rng=0).confidence_interval
    return float(ends.low), float(ends.high)


def report(results: Mapping[str, Result]) -> Report:
    """Return plain values: the figures of each of the ``recordings``, their ``mean`` and its
    ``interval``, and ``onset_error_ms``. The mean of a figure omits recordings that lack it."""
    by_figure = {
        name: [r.figures[name] for r in results.values() if name in r.figures]
        for name in DEFINITIONS
    }
    values = {name: scores for name, scores in by_figure.items() if scores}
    late_ms = 1000 * np.concatenate([np.zeros(0), *(r.onset_errors_s for r in results.values())])
    quartiles = np.percentile(late_ms, [25, 50, 75]).tolist() if len(late_ms) else [None] * 3
    return {
        "recordings": {name: result.figures for name, result in results.items()},
        "mean": {name: float(np.mean(scores)) for name, scores in values.items()},
        "interval": {name: interval(scores) for name, scores in values.items()},
        "onset_error_ms": {"median": quartiles[1], "quartiles": quartiles[::2]},
        "definitions": {name: DEFINITIONS[name] for name in values},
    }


def table(report: Report) -> str:
    """Format the means, their intervals and the onset error as text."""
    lines = ["", f"{'':24}{'mean':>8}    95 % interval over {len(report['recordings'])} recordings"]
    for name, value in report["mean"].items():
        ends = report["interval"][name]
        between = f"{ends[0]:.3f} to {ends[1]:.3f}" if ends else "-"
        lines.append(f"{name:24}{value:8.3f}    {between}")
    if (median := report["onset_error_ms"]["median"]) is not None:
        lines.append(f"matched onsets: {median:+.1f} ms in the median (positive: late)")
    return "\n".join(lines)


def row(name: str, lookahead: str, figures: Mapping[str, Any]) -> str:
    """Format the figures of a recording as a line. In the header each name maps to itself."""
    cells = [figures.get(name, "") for name in DEFINITIONS]
    texts = [f"{cell:.3f}" if isinstance(cell, float) else cell for cell in cells]
    return f"{name:34}{lookahead:>10}" + "".join(f"{text:>22}" for text in texts)
