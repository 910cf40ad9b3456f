"""Tempo of MIDI files: conversion of times to ticks, and the track of tempo, metre and key."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import mido

TICKS_PER_BEAT = 480  # per quarter note, 1.04 ms at 120 BPM; very long files have fewer
SLOWEST_BPM = 20.0
FASTEST_BPM = 400.0  # also the maximum tempo between 0 s and the first beat
_MAX_QUARTER_US = (1 << 24) - 1  # tempo events have 24 bits
MAX_ERROR_US = 2  # maximum uncorrected error of the tempo of a beat, per quarter note

TimedMessage = tuple[int, int, Any]  # tick, order within the tick, and message


@dataclass(frozen=True, slots=True)
class Tempo:
    """Beats, bars and key of a file. The times of the notes do not depend on them."""

    beats_s: Sequence[float] = (0.0, 0.5)
    """Times of at least two beats, ascending. After the last beat the tempo is constant."""
    quarters: float = 1.0  # length of a beat in quarter notes: 1, or 1.5 if its subdivision is 3
    bars: Sequence[tuple[int, int, int]] = ()
    """First beat, numerator and denominator of each bar that changes the time signature. Empty if
    the metre is unknown. The first time signature also applies to all earlier bars, the first of
    which may be shorter, because it starts at 0 s."""
    key: str | None = None  # name in MIDI, such as "Eb" or "F#m"; None if unknown
    chords: Sequence[tuple[float, str]] = ()  # start in seconds and name of each, for markers

    @classmethod
    def of_bpm(cls, bpm: float) -> Tempo:
        """Return a constant tempo, with a beat at 0 s. Raises ValueError if it is out of range."""
        if not SLOWEST_BPM <= bpm <= FASTEST_BPM:
            limits = f"from {SLOWEST_BPM:g} to {FASTEST_BPM:g} BPM"
            raise ValueError(f"the tempo must be {limits}, not {bpm!r}")
        return cls((0.0, 60 / bpm))


DEFAULT_TEMPO = Tempo()  # 120 beats per minute, for files without a known beat


class TempoMap:
    """Converts times of a performance to ticks.

    A file starts at 0 s, so earlier beats are added, with the period of the first beat. The time
    before them becomes a shorter beat with its own tempo, so that a sequencer draws all beats at
    their times. If this tempo would exceed FASTEST_BPM, that beat is merged with the next. Beats
    before 0 s are omitted. Beats that follow a quarter note of more than 16.8 s are drawn early.

    Attributes:
        changes: (tick, microseconds per quarter note) of the file's tempo events.
        signatures: (tick, numerator, denominator) of the file's time signatures.
    """

    def __init__(self, tempo: Tempo, ticks_per_beat: int = TICKS_PER_BEAT) -> None:
        self.ticks_per_beat, self._key, self._chords = ticks_per_beat, tempo.key, tempo.chords
        quarters, first_s = tempo.quarters, tempo.beats_s[0]
        period_s = tempo.beats_s[1] - first_s
        last_s, last_period_s = tempo.beats_s[-1], tempo.beats_s[-1] - tempo.beats_s[-2]
        min_s = 60 / FASTEST_BPM * quarters
        # Beats between 0 s and the first beat, the beats, and at least one with the last period.
        extra_beats = max(0, math.ceil(first_s / period_s) - 1)
        later_beats = max(1, math.ceil((min_s - last_s) / last_period_s))
        beats_s = [first_s - period_s * back for back in range(extra_beats, 0, -1)]
        beats_s += tempo.beats_s
        beats_s += [last_s + last_period_s * later for later in range(1, later_beats + 1)]
        early_beats = bisect_left(beats_s, min_s)
        beats_s[:early_beats] = [0.0]
        first_beat = 1 + extra_beats - early_beats  # index of tempo.beats_s[0] in beats_s
        self._ticks = round(ticks_per_beat * quarters)  # ticks of one beat
        # Times of the beats in the file. Rounding errors are corrected once they change the tempo
        # of a beat by more than MAX_ERROR_US.
        self._grid_us = [0.0]
        self.changes: list[tuple[int, int]] = []
        for index, end_s in enumerate(beats_s[1:]):
            quarter_us = min(round((1e6 * end_s - self._grid_us[-1]) / quarters), _MAX_QUARTER_US)
            if not self.changes or abs(quarter_us - self.changes[-1][1]) > MAX_ERROR_US:
                self.changes.append((self._ticks * index, quarter_us))
            self._grid_us.append(self._grid_us[-1] + self.changes[-1][1] * quarters)
        bars = [(first_beat + beat, upper, lower) for beat, upper, lower in tempo.bars]
        while len(bars) > 1 and bars[1][0] <= 0:
            del bars[0]
        signatures: dict[int, tuple[int, int]] = {}  # by the beat
        for index, numerator, denominator in bars:
            begin = index
            if not signatures:  # a sequencer counts bars from 0 s, so the first may be shorter
                begin %= round(4 * numerator / denominator / quarters)
                if begin:
                    short_numerator = round(begin * quarters * denominator / 4)
                    signatures[0] = short_numerator, denominator
            signatures[begin] = numerator, denominator  # the next bar may have another signature
        self.signatures = [(self._ticks * beat, *bar) for beat, bar in signatures.items()]

    def tick(self, time_s: float) -> int:
        """Return the tick that is nearest to a time."""
        us = 1e6 * time_s
        beat = min(max(bisect_right(self._grid_us, us) - 1, 0), len(self._grid_us) - 2)
        begin, end = self._grid_us[beat : beat + 2]
        return round(self._ticks * (beat + (us - begin) / (end - begin)))

    def track(self) -> mido.MidiTrack:
        """Return the track of tempo, metre, key and markers."""
        events = [(tick, 0, mido.MetaMessage("set_tempo", tempo=us)) for tick, us in self.changes]
        events += [
            (tick, 0, mido.MetaMessage("time_signature", numerator=upper, denominator=lower))
            for tick, upper, lower in self.signatures
        ]
        if self._key is not None:
            events.append((0, 0, mido.MetaMessage("key_signature", key=self._key)))
        events += [
            (self.tick(time_s), 1, mido.MetaMessage("marker", text=name))
            for time_s, name in self._chords
        ]
        return track_of(events)


def track_of(messages: Iterable[TimedMessage]) -> mido.MidiTrack:
    """Return a track of timed messages, which may be in any order."""
    track, previous_tick = mido.MidiTrack(), 0
    for tick, _, message in sorted(messages, key=lambda timed: timed[:2]):
        message.time = tick - previous_tick
        track.append(message)
        previous_tick = tick
    return track
