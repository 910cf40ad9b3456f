"""Scores recordings with note labels through the service's own pipeline.

Audio is resampled, cut into windows, transcribed and tracked by the service's streaming code, so
the figures are those of a live stream with the same look-ahead. Nothing is tuned here.
"""

from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from service.protocol.options import StreamOptions
from training.evaluation.collection import (
    Heard,
    MakeTranscriber,
    Show,
    checked,
    conditions,
    judged,
)
from training.evaluation.reports.breakdown import breakdowns
from training.evaluation.reports.pictures import draw_confusion, draw_rolls
from training.evaluation.reports.report import Report, Result, confusion_of, report, row, tables
from training.music.metrics import (
    DEFINITIONS,
    NoteList,
    confusion,
    matched_onsets,
    note_on_delays,
    scores,
)
from training.music.recordings import Collection


def evaluate_collection(
    collection: Collection,
    make_transcriber: MakeTranscriber,
    streams: list[StreamOptions],
    label_shift_s: float,
    jobs: int = 1,
    pictures: Path | None = None,
    show: Show = lambda _: None,
) -> list[Report]:
    """A report for each way of streaming; ``failures`` lists what is not scored.

    Args:
        make_transcriber, label_shift_s, jobs: see ``judged``.
        pictures: folder for a picture of each recording and way of streaming, and of which
            instruments are taken for which.
        show: is given lines to print: a row for each recording as it goes, then tables.
    """
    collection = checked(collection, label_shift_s, show)
    name = make_transcriber().config.name
    show(f"{collection.name}: {name}, label shift {1000 * label_shift_s:g} ms")
    show(row("recording", "look-ahead", {figure: figure for figure in DEFINITIONS}))
    results: list[dict[str, Result]] = [{} for _ in streams]
    scored = partial(_scored, pictures)
    for recording, outcome in judged(
        collection, make_transcriber, streams, label_shift_s, scored, jobs, show
    ):
        for options, result, so_far in zip(streams, outcome, results, strict=True):
            so_far[recording] = result
            show(row(recording, _milliseconds(options), result.figures))
    reports = []
    for options, so_far in zip(streams, results, strict=True):
        of_all = report(so_far)
        show(f"\nlook-ahead {_milliseconds(options)}{tables(of_all)}")
        if pictures and of_all["confusion"]:
            path = pictures / f"confusion_{options.lookahead_ms:g}ms.png"
            draw_confusion(path, f"Instruments, {name}", confusion_of(so_far))
        reports.append(conditions(collection, name, options, label_shift_s) | of_all)
    return reports


def _scored(pictures: Path | None, heard: Heard) -> Result:
    """The scores, and a picture in its folder."""
    reference, estimated, frame_s = heard.reference, heard.estimated, heard.frame_s
    probabilities = heard.transcription.frame_probabilities
    if pictures:
        name = f"{heard.name}, {_milliseconds(heard.options)} look-ahead"
        path = pictures / f"{heard.name}_{heard.options.lookahead_ms:g}ms.png"
        draw_rolls(path, name, probabilities, reference, estimated, frame_s)
    return score(reference, estimated, probabilities, frame_s, heard.transcription.known_s)


def score(
    reference: NoteList,
    estimated: NoteList,
    probabilities: NDArray[np.float32],
    frame_s: float,
    known_s: NDArray[np.float64] | None = None,
) -> Result:
    """All scores of one transcription.

    probabilities: (frames, PITCHES); known_s: as in ``note_on_delays``, None if unknown.
    """
    matched = matched_onsets(reference, estimated)
    figures = scores(reference, estimated, matched, probabilities, frame_s)
    if known_s is not None:
        figures |= note_on_delays(reference, matched, known_s)
    return Result(
        figures,
        estimated.onset_s[matched[:, 1]] - reference.onset_s[matched[:, 0]],
        *breakdowns(reference, estimated, matched, probabilities, frame_s),
        confusion(reference, estimated, matched),
    )


def _milliseconds(options: StreamOptions) -> str:
    return f"{options.lookahead_ms:g} ms"
