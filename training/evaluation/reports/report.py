"""Figures of many recordings as one report: means, intervals, scores by octave and by polyphony,
tables to read.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from model.config import INSTRUMENTS, PITCHES
from training.music.metrics import (
    DEFINITIONS,
    DELAY_FIGURES,
    FIGURES,
    INSTRUMENT_FIGURES,
    VELOCITY_FIGURE,
    NoteList,
)

BINS = 1000  # of probability: average precision is exact to about 1/BINS
POLYPHONY = ("0", "1", "2", "3", "4", "5 to 6", "7 and more")
_POLYPHONY_GROUP = np.array([0, 1, 2, 3, 4, 5, 5, *[6] * (PITCHES - 6)])  # of 0 to 128 notes
OCTAVES = tuple(f"C{octave} to B{octave}" for octave in range(-1, 9)) + ("C9 to G9",)


class Counts(NamedTuple):
    """Frames and notes by group: [groups] unless stated otherwise. They add up over recordings."""

    notes: NDArray[np.int64]
    """Notes of the labels."""
    estimated: NDArray[np.int64]
    matched: NDArray[np.int64]
    """Notes found, by onset and pitch."""
    hits: NDArray[np.int64]
    """Frames x pitches that sound in both labels and notes found; then in the notes found."""
    estimated_frames: NDArray[np.int64]
    sounding: NDArray[np.int64]
    """[groups, BINS + 1]: frames x pitches that sound in the labels, by probability."""
    silent: NDArray[np.int64]


def breakdowns(
    reference: NoteList,
    estimated: NoteList,
    matched: NDArray[np.int64],
    probabilities: NDArray[np.float32],
    frame_s: float,
) -> tuple[Counts, Counts | None]:
    """Counts of one recording by OCTAVES, and by POLYPHONY, the number of notes that sound in the
    labels: at the frame, or at the note's onset (that note included); None without frames. A
    matched note counts where its label does.

    matched: ``metrics.matched_onsets``; probabilities: (frames, PITCHES).
    """
    frames = len(probabilities)
    label, estimate = (notes.roll(frames, frame_s) for notes in (reference, estimated))
    bins = np.clip(probabilities * BINS, 0, BINS).astype(np.int64)
    octave = np.broadcast_to(np.arange(PITCHES) // 12, label.shape)
    notes, found = reference.pitch // 12, estimated.pitch // 12
    rolls = label, estimate, bins
    octaves = _counts(len(OCTAVES), octave, *rolls, notes, found, notes[matched[:, 0]])
    if not frames:
        return octaves, None
    group = _POLYPHONY_GROUP[label.sum(axis=1)]

    def at_onset(notes: NoteList) -> NDArray[np.int64]:
        at = np.ceil(notes.onset_s / frame_s - 1e-9).astype(int)
        return np.asarray(group[np.minimum(at, frames - 1)])

    notes, found = at_onset(reference), at_onset(estimated)
    found[matched[:, 1]] = notes[matched[:, 0]]
    groups = np.broadcast_to(group[:, None], label.shape)
    polyphony = _counts(len(POLYPHONY), groups, *rolls, notes, found, notes[matched[:, 0]])
    return octaves, polyphony


def pooled_figures(
    names: tuple[str, ...], recordings: Iterable[Counts | None]
) -> dict[str, dict[str, Any]]:
    """The figures of all recordings together, of the groups that have notes: OCTAVES or POLYPHONY,
    as the counts do."""
    known = [counts for counts in recordings if counts is not None]
    if not known:
        return {}
    total = [np.sum(column, axis=0) for column in zip(*known, strict=True)]
    groups = zip(names, *total, strict=True)
    return {name: _figures(Counts(*rest)) for name, *rest in groups if any(map(np.any, rest[:6]))}


def _figures(group: Counts) -> dict[str, float | int | None]:
    """``notes`` and the scores of one group; None if there is nothing to score."""
    notes, estimated, matched, hits, estimated_frames = (int(count) for count in group[:5])
    label_frames = int(group.sounding.sum())
    frames = label_frames + estimated_frames
    right = np.cumsum(group.sounding[::-1])
    precision = right / np.maximum(1, right + np.cumsum(group.silent[::-1]))
    area = float(np.sum(group.sounding[::-1] * precision))
    return {
        "notes": notes,
        "estimated_notes": estimated,
        "frame_ap": area / label_frames if label_frames else None,
        "frame_f1": 2 * hits / frames if frames else None,
        "onset_recall": matched / notes if notes else None,
        "onset_precision": matched / estimated if estimated else None,
        "onset_f1": 2 * matched / (notes + estimated) if notes + estimated else None,
    }


def _counts(
    size: int,
    groups: NDArray[np.int64],
    label: NDArray[np.bool_],
    estimate: NDArray[np.bool_],
    bins: NDArray[np.int64],
    notes: NDArray[np.int64],
    found: NDArray[np.int64],
    matched: NDArray[np.int64],
) -> Counts:
    """groups, label, estimate, bins: (frames, PITCHES); the others: the group of each note."""
    cells = groups * (BINS + 1) + bins
    in_groups = (notes, found, matched, groups[label & estimate], groups[estimate])
    return Counts(
        *(np.bincount(values, minlength=size) for values in in_groups),
        *(
            np.bincount(cells[where], minlength=size * (BINS + 1)).reshape(size, -1)
            for where in (label, ~label)
        ),
    )


Report = dict[str, Any]

RESAMPLES = 10_000
CONFIDENCE = 0.95


@dataclass
class Result:
    """The scores of one recording with one way of streaming."""

    figures: dict[str, float]
    """FIGURES, DELAY_FIGURES and perhaps VELOCITY_FIGURE and INSTRUMENT_FIGURES."""
    onset_errors_s: NDArray[np.float64]
    """Delays of matched onsets."""
    octaves: Counts | None = None
    polyphony: Counts | None = None
    confusion: NDArray[np.int64] | None = None
    """Notes by labelled and predicted instrument; None if unknown."""


def interval(values: Sequence[float]) -> tuple[float, float] | None:
    """95 % bootstrap interval of the mean over recordings; None for fewer than two.

    Percentiles of the means of RESAMPLES draws with replacement; the same values give the same
    interval. NaN are left out.
    """
    known = np.array(values)
    known = known[np.isfinite(known)]
    if len(known) < 2:
        return None
    draws = np.random.default_rng(0).integers(len(known), size=(RESAMPLES, len(known)))
    tail = 50 * (1 - CONFIDENCE)
    low, high = np.percentile(known[draws].mean(axis=1), [tail, 100 - tail])
    return float(low), float(high)


def report(results: Mapping[str, Result]) -> Report:
    """Plain values for JSON; NaN become None.

    ``recordings`` holds the figures of each, ``mean`` and ``interval`` those over recordings,
    ``octaves`` and ``polyphony`` scores pooled over recordings; ``confusion`` the notes of each
    labelled instrument by the predicted one, if known.
    """
    names = [*FIGURES, VELOCITY_FIGURE, *INSTRUMENT_FIGURES, *DELAY_FIGURES]
    values = {
        name: [r.figures[name] for r in results.values() if name in r.figures] for name in names
    }
    values = {name: found for name, found in values.items() if found}
    late = 1000 * np.concatenate([np.zeros(0), *(r.onset_errors_s for r in results.values())])
    return {
        "recordings": {name: _plain(result.figures) for name, result in results.items()},
        "mean": _plain({name: _mean(found) for name, found in values.items()}),
        "interval": {name: interval(found) for name, found in values.items()},
        "onset_error_ms": _spread(late),
        "octaves": pooled_figures(OCTAVES, (r.octaves for r in results.values())),
        "polyphony": pooled_figures(POLYPHONY, (r.polyphony for r in results.values())),
        "confusion": named_confusion(confusion_of(results)),
        "definitions": {name: DEFINITIONS[name] for name in values},
    }


def confusion_of(results: Mapping[str, Result]) -> NDArray[np.int64]:
    """[classes, classes], over all recordings."""
    nothing = np.zeros((len(INSTRUMENTS), len(INSTRUMENTS)), np.int64)
    return sum((r.confusion for r in results.values() if r.confusion is not None), nothing)


def named_confusion(counts: NDArray[np.int64]) -> dict[str, dict[str, int]]:
    """The counts that are above 0, by the names of the classes."""
    return {
        played: {found: n for found, n in zip(INSTRUMENTS, row.tolist(), strict=True) if n}
        for played, row in zip(INSTRUMENTS, counts, strict=True)
        if row.any()
    }


def tables(report: Report) -> str:
    """The means with their intervals, the timing and both breakdowns, as text."""
    mean, intervals = report["mean"], report["interval"]
    lines = ["", f"{'':24}{'mean':>8}    95 % interval over {len(report['recordings'])} recordings"]
    for name, value in mean.items():
        ends = intervals[name]
        between = f"{ends[0]:.3f} to {ends[1]:.3f}" if ends else "-"
        lines.append(f"{name:24}{_cell(value):>8}    {between}")
    timing = report["onset_error_ms"]
    if timing["median"] is not None:
        low, high = timing["quartiles"]
        lines.append(f"matched onsets: {timing_words(low, timing['median'], high)}")
    for title in ("octaves", "polyphony"):
        columns = ("notes", "frame_ap", "frame_f1", "onset_recall", "onset_precision", "onset_f1")
        lines += ["", f"{title:16}" + "".join(f"{column:>17}" for column in columns)]
        for name, row in report[title].items():
            lines.append(f"{name:16}" + "".join(f"{_cell(row[c]):>17}" for c in columns))
    return "\n".join(lines)


def timing_words(low: float, median: float, high: float) -> str:
    """Of the delays of matched onsets, in ms, with their quartiles."""
    spread = f"half of them from {low:+.1f} to {high:+.1f} ms"
    return f"{median:+.1f} ms in the median (positive: late), {spread}"


def row(name: str, lookahead: str, figures: Mapping[str, Any]) -> str:
    """One recording's line; give the names of the figures for the line above all."""
    cells = [figures.get(name, "") for name in DEFINITIONS]
    return f"{name:34}{lookahead:>10}" + "".join(f"{_cell(cell):>22}" for cell in cells)


def _cell(value: object) -> str:
    if value is None or (isinstance(value, float) and not np.isfinite(value)):
        return "-"
    return f"{value:.3f}" if isinstance(value, float) else str(value)


def _mean(values: Sequence[float]) -> float:
    known = [value for value in values if np.isfinite(value)]
    return float(np.mean(known)) if known else float("nan")


def _plain(figures: Mapping[str, float]) -> dict[str, float | None]:
    return {name: value if np.isfinite(value) else None for name, value in figures.items()}


def _spread(values: NDArray[np.float64]) -> dict[str, Any]:
    if not len(values):
        return {"median": None, "quartiles": None, "deviation": None}
    low, median, high = (float(value) for value in np.percentile(values, [25, 50, 75]))
    return {"median": median, "quartiles": [low, high], "deviation": float(np.std(values))}
