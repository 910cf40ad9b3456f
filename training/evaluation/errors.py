"""The errors of a transcription by kind: false frames, false notes and missed notes.

A false frame is covered by a note found but by no label. It counts once, as the first that fits:
``after_end`` of a label of its pitch, within AFTER_END_S; at an ``overtone`` of a sounding label;
``elsewhere``. A false note has no label (``metrics.matched_onsets``): ``again``, at a pitch that
sounds in the labels or has just ended; at an ``overtone`` of a label struck with it; ``other``.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from model.config import PITCHES
from service.protocol.options import StreamOptions
from training.evaluation.real import (
    Heard,
    MakeTranscriber,
    Show,
    checked,
    conditions,
    judged,
)
from training.evaluation.reports.report import OCTAVES, timing_words
from training.music.metrics import (
    ONSET_TOLERANCE_S,
    NoteList,
    matched_onsets,
    note_list,
    ringing,
)
from training.music.recordings import Collection

AFTER_END_S = 1.0
RINGING_S = (0.0, 0.2, 0.5)
"""Times after the ends of notes at which frame probabilities are averaged."""
OVERTONES = (12, 19, 24, 28, 31, 34, 36)
"""Semitones from a note to its partials 2 to 8."""
FRAME_PLACES = ("after_end", "overtone", "elsewhere")
NOTE_KINDS = ("again", "overtone", "other")


class Errors(NamedTuple):
    """Counts of one recording, or of several."""

    false_frames: NDArray[np.int64]
    """By FRAME_PLACES."""
    false_notes: NDArray[np.int64]
    """By NOTE_KINDS."""
    found: NDArray[np.int64]
    """Matched labels, by octave."""
    labels: NDArray[np.int64]
    ringing: NDArray[np.float64]
    """Sums of frame probabilities RINGING_S after ends."""
    ends: NDArray[np.int64]
    """The number of ends in each sum: those whose pitch is not struck again before."""
    onset_errors_s: NDArray[np.float64]
    """Delays of matched onsets."""

    def figures(self) -> dict[str, Any]:
        """Plain values for JSON: shares of all false frames and notes, recall by octave,
        milliseconds."""
        late_ms = 1000 * self.onset_errors_s
        return {
            "false_frames": int(self.false_frames.sum()),
            "false_frame_places": _shares(FRAME_PLACES, self.false_frames),
            "false_notes": int(self.false_notes.sum()),
            "false_note_kinds": _shares(NOTE_KINDS, self.false_notes),
            "probability_after_end": {
                f"{1000 * after:g} ms": float(total / count) if count else None
                for after, total, count in zip(RINGING_S, self.ringing, self.ends, strict=True)
            },
            "onset_recall": {
                name: float(found / labels)
                for name, found, labels in zip(OCTAVES, self.found, self.labels, strict=True)
                if labels
            },
            "onset_error_quartiles_ms": (
                [float(value) for value in np.percentile(late_ms, [25, 50, 75])]
                if len(late_ms)
                else None
            ),
        }


def errors(
    reference: NoteList, estimated: NoteList, probabilities: NDArray[np.float32], frame_s: float
) -> Errors:
    """Of one transcription; probabilities: (frames, PITCHES)."""
    matched = matched_onsets(reference, estimated)
    octave = reference.pitch // 12
    false = np.ones(len(estimated), bool)
    false[matched[:, 1]] = False
    longest = max(RINGING_S)
    heard = [ringing(reference, probabilities, frame_s, s, longest) for s in RINGING_S]
    return Errors(
        false_frames=_false_frames(reference, estimated, len(probabilities), frame_s),
        false_notes=_false_notes(reference, estimated, false),
        found=np.bincount(octave[matched[:, 0]], minlength=len(OCTAVES)),
        labels=np.bincount(octave, minlength=len(OCTAVES)),
        ringing=np.array([float(values.sum()) for values in heard]),
        ends=np.array([len(values) for values in heard]),
        onset_errors_s=estimated.onset_s[matched[:, 1]] - reference.onset_s[matched[:, 0]],
    )


def _false_frames(
    reference: NoteList, estimated: NoteList, frames: int, frame_s: float
) -> NDArray[np.int64]:
    sounds = reference.roll(frames, frame_s)
    false = estimated.roll(frames, frame_s) & ~sounds
    ended = NoteList(
        reference.offset_s, reference.offset_s + AFTER_END_S, reference.pitch, reference.velocity
    ).roll(frames, frame_s)
    overtone = np.zeros_like(sounds)
    for interval in OVERTONES:
        overtone[:, interval:] |= sounds[:, : PITCHES - interval]
    places = (false & ended, false & ~ended & overtone, false & ~ended & ~overtone)
    return np.array([int(place.sum()) for place in places])


def _false_notes(
    reference: NoteList, estimated: NoteList, false: NDArray[np.bool_]
) -> NDArray[np.int64]:
    counts = np.zeros(3, np.int64)
    for onset_s, pitch in zip(estimated.onset_s[false], estimated.pitch[false], strict=True):
        of_pitch = reference.pitch == pitch
        ringing = (reference.onset_s < onset_s) & (onset_s < reference.offset_s + AFTER_END_S)
        together = np.abs(reference.onset_s - onset_s) <= ONSET_TOLERANCE_S
        if (of_pitch & ringing).any():
            counts[0] += 1
        elif (together & np.isin(pitch - reference.pitch, OVERTONES)).any():
            counts[1] += 1
        else:
            counts[2] += 1
    return counts


def analyse(
    collection: Collection,
    make_transcriber: MakeTranscriber,
    options: StreamOptions,
    label_shift_s: float,
    jobs: int = 1,
    show: Show = lambda _: None,
) -> dict[str, Any]:
    """``recordings``, the figures of each by name, and ``overall``, those of all notes and frames
    together, beside how they were streamed; ``failures`` lists what is not scored. ``show`` is
    given the same as text. For the other arguments see ``judged``."""
    collection = checked(collection, label_shift_s, show)
    nothing = note_list(np.zeros((0, 4)))
    all_found = [errors(nothing, nothing, np.zeros((0, PITCHES), np.float32), 1.0)]
    of_each = {}
    for name, (found,) in judged(
        collection, make_transcriber, [options], label_shift_s, _errors_of, jobs, show
    ):
        all_found.append(found)
        of_each[name] = found.figures()
        show(text(name, of_each[name]))
    *counts, onset_errors_s = zip(*all_found, strict=True)
    sums: list[Any] = [sum(column) for column in counts]
    overall = Errors._make([*sums, np.concatenate(onset_errors_s)]).figures()
    show(text("overall", overall))
    model = make_transcriber().config.name
    figures = {"recordings": of_each, "overall": overall}
    return conditions(collection, model, options, label_shift_s) | figures


def _errors_of(heard: Heard) -> Errors:
    probabilities = heard.transcription.frame_probabilities
    return errors(heard.reference, heard.estimated, probabilities, heard.frame_s)


def text(name: str, figures: dict[str, Any]) -> str:
    lines = [name]
    for title, count, shares in (
        ("false frames", figures["false_frames"], figures["false_frame_places"]),
        ("false notes", figures["false_notes"], figures["false_note_kinds"]),
        ("probability after an end", "", figures["probability_after_end"]),
        ("onset recall", "", figures["onset_recall"]),
    ):
        cells = (f"{key} {value:.2f}" for key, value in shares.items() if value is not None)
        lines.append(f"  {title:26}{count!s:>6}  " + ", ".join(cells))
    if figures["onset_error_quartiles_ms"]:
        words = timing_words(*figures["onset_error_quartiles_ms"])
        lines.append(f"  {'matched onsets':26}{words}")
    return "\n".join(lines)


def _shares(names: tuple[str, ...], counts: NDArray[np.int64]) -> dict[str, float | None]:
    total = int(counts.sum())
    return {
        name: int(count) / total if total else None
        for name, count in zip(names, counts, strict=True)
    }
