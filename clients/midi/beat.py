"""Beats, and the ticks of a MIDI file that keeps to them."""

from __future__ import annotations

from dataclasses import dataclass

# As the service writes its files, so that the same notes give the same bytes.
TICKS_PER_BEAT = 5_000

SHORTEST_BEAT_S = 0.02  # 3000 a minute: sequencers draw no faster ones


@dataclass(frozen=True, slots=True)
class Beat:
    """Beats at ``first_s``, ``first_s + period_s``, ... seconds."""

    period_s: float
    first_s: float = 0.0

    @property
    def bpm(self) -> float:
        return 60 / self.period_s


DEFAULT_BEAT = Beat(0.5)  # 120 a minute: the audio's own is not known


class TempoMap:
    """Ticks of the times of a performance.

    Where the first beat does not lie at 0 s, the time before it is a beat of its own length, so
    that all beats lie where a sequencer draws them.

    Attributes:
        changes: (tick, microseconds a beat) of the file's tempo events.
    """

    def __init__(self, beat: Beat) -> None:
        self._us = round(1e6 * beat.period_s)
        lead_s = beat.first_s % beat.period_s
        if 0 < lead_s < SHORTEST_BEAT_S:
            lead_s += beat.period_s
        self._lead_us = round(1e6 * lead_s)
        self.changes = [(0, self._lead_us), (TICKS_PER_BEAT, self._us)]
        if self._lead_us == 0:
            self.changes = [(0, self._us)]

    def tick(self, time_s: float) -> int:
        """The tick nearest to a time."""
        us = 1e6 * time_s
        if us < self._lead_us:
            return round(TICKS_PER_BEAT * us / self._lead_us)
        lead_ticks = TICKS_PER_BEAT if self._lead_us else 0
        return lead_ticks + round(TICKS_PER_BEAT * (us - self._lead_us) / self._us)
