"""Score a model on real recordings, through the pipeline that users get.

``python -m training.evaluate real --data-dir DIR --lookahead-ms 200 --json OUT``

DIR holds audio and labels in any of the layouts of ``training.recordings``. Audio is decoded,
resampled, cut into windows, transcribed and tracked by the service's own streaming code; the
figures are therefore those of a live stream with the same look-ahead. Several look-aheads can be
given at once. Labels can be shifted where a data set's audio is known to lag behind them. Nothing
here chooses a threshold.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
import torch
from numpy.typing import NDArray

from model.checkpoint import CheckpointError, load, shipped
from model.config import HOP
from service.engine import Engine, Transcriber
from service.events import Note
from service.options import StreamOptions
from service.transcribe import transcribe_array
from training.metrics import FIGURES, NoteList, note_list, onset_errors, scores
from training.recordings import LabelError, Recording, recordings
from training.window_memo import WindowMemo

Report = dict[str, Any]


def main(arguments: list[str] | None = None) -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    real = commands.add_parser("real", help="recordings with note labels")
    real.add_argument("--data-dir", type=Path, required=True)
    real.add_argument("--lookahead-ms", type=float, nargs="+", default=[200.0])
    real.add_argument(
        "--label-shift-ms", type=float, default=0.0, help="added to the labels' times"
    )
    real.add_argument("--block-frames", type=int, default=StreamOptions().block_frames)
    real.add_argument("--model", default="live", help=f"{', '.join(shipped())} or a .safetensors")
    real.add_argument(
        "--jobs", type=int, default=os.cpu_count() or 1, help="recordings at one time"
    )
    real.add_argument("--json", type=Path, help="write all figures to this file")
    options = parser.parse_args(arguments)
    try:
        streams = [
            StreamOptions(lookahead_ms=ms, block_frames=options.block_frames)
            for ms in options.lookahead_ms
        ]
        reports = evaluate_folder(
            options.data_dir,
            partial(load, options.model),
            streams,
            options.label_shift_ms / 1000,
            options.jobs,
        )
    except (CheckpointError, LabelError, ValueError, OSError) as error:
        print(f"training.evaluate: {error}", file=sys.stderr)
        return 1
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        # One look-ahead: its report. Several: the first one's, and all of them below it.
        rest = {"by_lookahead": reports} if len(reports) > 1 else {}
        options.json.write_text(json.dumps({**reports[0], **rest}, indent=1))
    return 0


def evaluate_folder(
    folder: Path,
    make_transcriber: Callable[[], Transcriber],
    streams: list[StreamOptions],
    label_shift_s: float,
    jobs: int = 1,
) -> list[Report]:
    """A report for each way of streaming; prints a row for each recording as it goes.

    make_transcriber: called once for each recording, in one of `jobs` processes; picklable.
    """
    name = make_transcriber().config.name
    print(f"{folder}: {name}, label shift {1000 * label_shift_s:g} ms")
    print(_row("recording", "look-ahead", dict(zip(FIGURES, FIGURES, strict=True))))
    rows: list[dict[str, dict[str, float]]] = [{} for _ in streams]
    late: list[list[NDArray[np.float64]]] = [[] for _ in streams]
    evaluate = partial(evaluate_recording, make_transcriber, streams, label_shift_s)
    found = list(recordings(folder))
    with _mapper(jobs) as mapped:
        for recording, results in zip(found, mapped(evaluate, found), strict=True):
            for options, (figures, errors), figures_of, errors_of in zip(
                streams, results, rows, late, strict=True
            ):
                figures_of[recording.name] = figures
                errors_of.append(errors)
                print(_row(recording.name, _milliseconds(options), figures), flush=True)
    reports = []
    for options, figures_of, errors_of in zip(streams, rows, late, strict=True):
        timing = 1000 * np.concatenate(errors_of)
        mean = {f: float(np.nanmean([row[f] for row in figures_of.values()])) for f in FIGURES}
        print(_row("mean", _milliseconds(options), mean))
        reports.append(
            {
                "model": name,
                "lookahead_ms": options.lookahead_ms,
                "block_frames": options.block_frames,
                "label_shift_ms": 1000 * label_shift_s,
                "onset_error_ms": {
                    "median": float(np.median(timing)) if len(timing) else None,
                    "deviation": float(np.std(timing)) if len(timing) else None,
                },
                "recordings": figures_of,
                "mean": mean,
            }
        )
        if len(timing):
            print(f"  matched onsets come {np.median(timing):+.1f} ms late in the median")
    return reports


def evaluate_recording(
    make_transcriber: Callable[[], Transcriber],
    streams: list[StreamOptions],
    label_shift_s: float,
    recording: Recording,
) -> list[tuple[dict[str, float], NDArray[np.float64]]]:
    """For each way of streaming the four figures, and how many seconds late matched onsets are."""
    samples, rate = soundfile.read(recording.audio, dtype="float32", always_2d=True)
    reference = recording.notes.shifted(label_shift_s)
    out = []
    with Engine(WindowMemo(make_transcriber())) as engine:
        for options in streams:
            result = transcribe_array(samples.mean(axis=1), rate, engine, options)
            estimated = estimated_notes(result.notes)
            frame_s = HOP / engine.config.sample_rate
            figures = scores(reference, estimated, result.frame_probabilities, frame_s)
            out.append((figures, onset_errors(reference, estimated)))
    return out


@contextmanager
def _mapper(jobs: int) -> Iterator[Callable[..., Iterable[Any]]]:
    """The built-in map, or one over processes that share the cores; both keep the order."""
    if jobs == 1:
        yield map
        return
    threads = max(1, (os.cpu_count() or 1) // jobs)
    with ProcessPoolExecutor(
        jobs, multiprocessing.get_context("spawn"), torch.set_num_threads, (threads,)
    ) as pool:
        yield pool.map


def estimated_notes(notes: list[Note]) -> NoteList:
    """The service's notes as columns."""
    return note_list(
        np.array([(note.onset_s, note.offset_s, note.pitch, note.velocity) for note in notes])
    )


def _milliseconds(options: StreamOptions) -> str:
    return f"{options.lookahead_ms:g} ms"


def _row(name: str, lookahead: str, figures: dict[str, Any]) -> str:
    cells = [f"{v:.3f}" if isinstance(v, float) else v for v in map(figures.get, FIGURES)]
    return f"{name:34}{lookahead:>10}" + "".join(f"{cell:>16}" for cell in cells)


if __name__ == "__main__":
    sys.exit(main())
