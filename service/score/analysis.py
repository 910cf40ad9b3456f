"""Analyses the beats, bars, key and chords of a performance, for its MIDI file and its score."""

from argparse import SUPPRESS, ArgumentParser, ArgumentTypeError, BooleanOptionalAction, Namespace
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

import numpy as np
from pydantic import ValidationError

from model.validation import format_error
from service.protocol.midi_file import FileNote
from service.protocol.tempo import DEFAULT_TEMPO, Tempo
from service.score.beats import (
    F64,
    MAX_BEATS_PER_BAR,
    MIN_STEADY_CONFIDENCE,
    NO_BEAT_HINTS,
    BeatHints,
    Beats,
)
from service.score.chord_symbols import ChordSymbol, find_chords
from service.score.keys import Key, key_of
from service.score.live import LiveBeat, fill_gaps
from service.score.pauses import find_beats_between_pauses, long_pauses
from service.score.steady import find_steady_beats

_FREE_BEAT_S = 0.5  # length of a quarter in free rhythm


@dataclass(frozen=True)
class Analysis:
    """Result of the analysis of a performance.

    Attributes:
        beats: detected beats. If there are none, or their confidence is too low: beats of the
            hints' tempo and bars, or every half second except in bars in which nothing happens.
        steady: True if the performance has a steady beat, False for free rhythm.
        chords: chord symbols at the beats where the harmony changes.
    """

    beats: Beats
    key: Key
    steady: bool
    chords: Sequence[ChordSymbol] = ()

    @property
    def tempo(self) -> Tempo:
        """Tempo map for a MIDI file. Without a steady beat: the default tempo, without bars."""
        if not self.steady:
            return replace(DEFAULT_TEMPO, key=self.key.name, chords=self.chord_times)
        beats = self.beats
        bars = beats.bars(0, len(beats.time_s))
        if len(bars) > 1 and beats.bar[0]:
            del bars[0]  # a pickup, which is shorter than its signature
        changes = [next(same) for _, same in groupby(bars, key=lambda bar: bar[1])]
        return Tempo(
            beats_s=beats.time_s.tolist(),
            quarters=float(beats.quarters),
            bars=[(int(beat), *beats.signature(size)) for beat, size in changes],
            key=self.key.name,
            chords=self.chord_times,
        )

    @property
    def chord_times(self) -> list[tuple[float, str]]:
        """Start of each chord in seconds, and its name."""
        beats = np.array([chord.beat for chord in self.chords], float)
        times = np.maximum(self.beats.time(beats), 0).tolist()
        return [(time_s, chord.name) for time_s, chord in zip(times, self.chords, strict=True)]

    @property
    def chords_json(self) -> list[dict[str, Any]]:
        """Chords as JSON."""
        return [{"time_s": round(time_s, 3), "name": name} for time_s, name in self.chord_times]

    @property
    def beats_json(self) -> list[dict[str, float]]:
        """Beats as JSON; empty if there is no steady beat."""
        beats = self.beats
        if not self.steady:
            return []
        metre = {"beats_per_bar": beats.beats_per_bar, "subdivision": beats.subdivision}
        pairs = zip(beats.time_s.tolist(), beats.bar.tolist(), strict=True)
        return [{"time_s": time_s, "place": place, **metre} for time_s, place in pairs]


def analyse(
    notes: Sequence[FileNote],
    hints: BeatHints = NO_BEAT_HINTS,
    reported: Sequence[LiveBeat] | None = None,
    is_live: bool = False,
) -> Analysis:
    """Return beats, key and chords of the notes that have ended.

    If the hints contain a tempo, beats per bar, a downbeat or ``fixed_tempo``, detected beats count
    as steady at any confidence.

    Args:
        reported: beats to use unchanged, with their gaps filled. The rhythm is free if there are
            fewer than two.
        is_live: True if the beats were detected during the performance. The rhythm is then also
            free if they cover too little of it (``fill_gaps``).
    """
    rows = [(n.onset_s, n.offset_s, n.pitch, n.velocity) for n in notes if n.offset_s is not None]
    array = np.array(rows, float).reshape(-1, 4)
    array = array[np.lexsort((array[:, 2], array[:, 0]))]
    key = key_of(array)
    end_s = float(array[:, 1].max(initial=0))
    if reported is None:
        beats = find_steady_beats(array, hints) or find_beats_between_pauses(array, hints)
    elif is_live:
        duration_s = end_s - array[:, 0].min(initial=end_s)
        beats = fill_gaps(reported, float(duration_s - long_pauses(array)[1].sum()))
    else:
        beats = fill_gaps(reported)
    first_s = hints.first_downbeat_s
    has_hints = hints.bpm or hints.beats_per_bar or first_s is not None or hints.fixed_tempo
    if beats is not None and (has_hints or beats.confidence >= MIN_STEADY_CONFIDENCE):
        return Analysis(beats, key, True, find_chords(array, beats, *key, hints.chords))
    metre = hints.beats_per_bar or 4
    if hints.bpm:
        period_s, subdivision = 60 / hints.bpm, hints.subdivision or 2
        downbeat, begin_s = divmod(first_s or 0.0, period_s)
        time_s = np.arange(begin_s, end_s + 1 + 2 * period_s, period_s)
    else:
        subdivision, downbeat = 2, 0
        time_s = np.arange(0, end_s + 1 + 2 * _FREE_BEAT_S, _FREE_BEAT_S)
        time_s = _eventful_bars(time_s, array[:, :2], metre)
    bar = (np.arange(len(time_s)) - int(downbeat)) % metre
    free = Beats(time_s, bar, metre, subdivision, 0.0)
    steady = hints.bpm is not None
    return Analysis(free, key, steady, find_chords(array, free, *key, hints.chords))


def _eventful_bars(time_s: F64, notes: F64, metre: int) -> F64:
    """Remove bars of free rhythm if no note starts or ends in them or in a neighbouring bar. Long
    silences and long held notes then need only a few bars."""
    bar = np.arange(len(time_s)) // metre
    events = bar[np.searchsorted(time_s, notes.ravel(), side="right").clip(1) - 1]
    near = np.unique(events[:, None] + np.arange(-1, 2))
    return time_s[np.isin(bar, near)] if len(notes) else time_s


def add_beat_options(parser: ArgumentParser) -> None:
    """Add the options for the user's beat hints. The help of --bpm names the other options."""
    usage = "tempo; see --beats-per-bar, --fixed-tempo, --chords"
    parser.add_argument("--bpm", type=_bpm, help=usage)
    parser.add_argument("--beats-per-bar", dest="metre", type=_metre, help=SUPPRESS)
    parser.add_argument("--fixed-tempo", action="store_true", help=SUPPRESS)
    parser.add_argument("--chords", action=BooleanOptionalAction, help=SUPPRESS)


def beat_hints_from(options: Namespace) -> BeatHints:
    """Return the hints in the parsed options. Raises ValueError with a one-line message."""
    fields = vars(options) | (options.metre or {})
    try:
        return BeatHints(
            **{name: fields[name] for name in BeatHints.model_fields if name in fields}
        )
    except ValidationError as error:
        raise ValueError(format_error(error.errors()[0])) from None


def _bpm(text: str) -> float:
    try:
        Tempo.of_bpm(bpm := float(text))
    except ValueError as error:
        raise ArgumentTypeError(str(error)) from None
    return bpm


def _metre(text: str) -> dict[str, int | None]:
    """Convert a number of beats, such as 5, or a signature, such as 7/4 or 12/8, to hints."""
    number, _, unit = text.partition("/")
    beats = int(number) if number.isdecimal() else 0
    parts = {"": None, "4": 2, "8": 3}.get(unit, 0)
    if parts == 3:
        beats = 0 if beats % 3 else beats // 3
    if parts == 0 or not 2 <= beats <= MAX_BEATS_PER_BAR:
        usage = f"use 2 to {MAX_BEATS_PER_BAR} beats, such as 5, 7/4 or 12/8"
        raise ArgumentTypeError(f"the metre {text!r} is not supported: {usage}")
    return {"beats_per_bar": beats, "subdivision": parts}
