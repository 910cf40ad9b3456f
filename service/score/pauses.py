"""Finds the beats of music with long pauses. Bars continue through a pause at the usual tempo."""

from dataclasses import replace

import numpy as np

from service.score.beats import F64, BeatHints, Beats
from service.score.metre import find_beats

MAX_PAUSE_S = 8.0  # longer pauses are shortened to _SHORTENED_S for the beat tracker
_SHORTENED_S = 4.0
_NEAR_S = 0.1  # maximum time from the end of a pause to the beat that ends it


def long_pauses(notes: F64) -> tuple[F64, F64]:
    """Return start and duration in seconds of the pauses longer than ``MAX_PAUSE_S``.

    Args:
        notes: [notes, 4] onset and offset in s, MIDI pitch, velocity; onsets ascend.
    """
    begin_s = np.maximum.accumulate(notes[:-1, 1])
    pauses_s = notes[1:, 0] - begin_s
    is_long = pauses_s > MAX_PAUSE_S
    return begin_s[is_long], pauses_s[is_long]


def find_beats_between_pauses(notes: F64, hints: BeatHints) -> Beats | None:
    """Return the beats of a performance, or None if it is too short.

    The beat tracker gets shortened pauses, because a pause has no tempo. Each pause is then filled
    with the number of complete bars that fits best.

    Args:
        notes: [notes, 4] onset and offset in s, MIDI pitch, velocity; onsets ascend.
    """
    begin_s, pauses_s = long_pauses(notes)
    cuts_s = pauses_s - _SHORTENED_S
    removed_s = np.append(0.0, np.cumsum(cuts_s))  # before each pause, and after the last one

    def shortened(time_s: F64) -> F64:
        return time_s - removed_s[np.searchsorted(begin_s + _SHORTENED_S / 2, time_s)]

    closer = np.column_stack([shortened(notes[:, 0]), shortened(notes[:, 1]), notes[:, 2:]])
    if hints.first_downbeat_s is not None:
        down_s = float(shortened(np.array(hints.first_downbeat_s)))
        hints = hints.model_copy(update={"first_downbeat_s": max(0.0, down_s)})
    beats = find_beats(closer, hints)
    if beats is not None:
        for pause_s, cut_s in zip(begin_s.tolist(), cuts_s.tolist(), strict=True):
            beats = _lengthened(beats, pause_s, cut_s)
    return beats


def _lengthened(beats: Beats, begin_s: float, by_s: float) -> Beats:
    """Return the beats after lengthening the pause at ``begin_s`` by ``by_s``. The pause is filled
    with complete bars."""
    time_s, bar, size = beats.time_s, beats.bar, beats.beats_per_bar
    end_s = begin_s + _SHORTENED_S + _NEAR_S
    first = max(0, int(np.searchsorted(time_s, begin_s, "right")) - 1)
    last = max(first + 1, int(np.searchsorted(time_s, end_s, "right")) - 1)
    if last == len(time_s):
        return beats
    later_s = time_s[last:] + by_s
    usual = (later_s[0] - time_s[first]) * beats.bpm / 60 - 1
    rest = int(bar[last] - bar[first] - 1) % size
    count = rest + max(0, round((usual - rest) / size)) * size
    filled_s = np.linspace(time_s[first], later_s[0], count + 2)[:-1]
    filled = (bar[first] + np.arange(count + 1)) % size
    return replace(
        beats,
        time_s=np.concatenate([time_s[:first], filled_s, later_s]),
        bar=np.concatenate([bar[:first], filled, bar[last:]]),
    )
