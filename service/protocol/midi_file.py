"""Standard MIDI Files, by pretty_midi, for the service and its clients: the same notes give the
same bytes."""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import mido
from pretty_midi import ControlChange, Instrument, Note, PrettyMIDI
from pretty_midi.pretty_midi import MAX_TICK

TICKS_PER_BEAT = 480
"""1.04 ms per tick at 120 BPM; halved until a long file has fewer ticks than readers take."""
PEDALLED = ("piano", "electric piano")
CHANNELS = tuple(channel for channel in range(16) if channel != 9)  # 9 is percussion's
SUSTAIN = 64  # controller number
SLOWEST_BPM = 20.0
FASTEST_BPM = 400.0  # that may be asked for, or that a file has before its first beat


class FileNote(Protocol):
    """A note; those without an end are left out."""

    @property
    def pitch(self) -> int: ...
    @property
    def velocity(self) -> int: ...
    @property
    def onset_s(self) -> float: ...
    @property
    def offset_s(self) -> float | None: ...
    @property
    def instrument(self) -> str | None: ...


@dataclass(frozen=True, slots=True)
class Beat:
    """Beats at ``first_s``, ``first_s + period_s``, ... seconds."""

    period_s: float
    first_s: float = 0.0

    @classmethod
    def of_bpm(cls, bpm: float) -> Beat:
        """Raises ValueError."""
        if not SLOWEST_BPM <= bpm <= FASTEST_BPM:
            raise ValueError(f"a tempo is {SLOWEST_BPM:g} to {FASTEST_BPM:g} BPM, not {bpm!r}")
        return cls(60 / bpm)

    @property
    def bpm(self) -> float:
        return 60 / self.period_s


DEFAULT_BEAT = Beat(0.5)  # 120 BPM, as the audio's own beat is unknown


class TempoMap:
    """Ticks of the times of a performance.

    If the first beat is not at 0 s, the time before it is one beat of its own length, so that a
    sequencer draws all beats where they are. A first beat that comes too soon for that is left out.

    Attributes:
        changes: (tick, microseconds per beat) of the file's tempo events.
    """

    def __init__(self, beat: Beat, ticks_per_beat: int = TICKS_PER_BEAT) -> None:
        self.ticks_per_beat = ticks_per_beat
        self._us = round(1e6 * beat.period_s)
        lead_s = beat.first_s % beat.period_s
        if 0 < lead_s < 60 / FASTEST_BPM:
            lead_s += beat.period_s
        self._lead_us = round(1e6 * lead_s)
        self.changes = [(0, self._lead_us), (ticks_per_beat, self._us)]
        if self._lead_us == 0:
            self.changes = [(0, self._us)]

    def tick(self, time_s: float) -> int:
        us = 1e6 * time_s
        if us < self._lead_us:
            return round(self.ticks_per_beat * us / self._lead_us)
        lead_ticks = self.ticks_per_beat if self._lead_us else 0
        return lead_ticks + round(self.ticks_per_beat * (us - self._lead_us) / self._us)

    @property
    def longest_tick_s(self) -> float:
        return max(us for _, us in self.changes) / self.ticks_per_beat / 1e6

    def empty_file(self) -> PrettyMIDI:
        """With the tempo, and no notes."""
        track = mido.MidiTrack()
        for (before, _), (tick, us) in zip([(0, 0), *self.changes], self.changes, strict=False):
            track.append(mido.MetaMessage("set_tempo", tempo=us, time=tick - before))
        return PrettyMIDI(
            mido_object=mido.MidiFile(tracks=[track], ticks_per_beat=self.ticks_per_beat)
        )


def played(notes: Iterable[FileNote], programs: Mapping[str, int]) -> list[str]:
    """The instruments of the notes, in the order of ``programs``."""
    names = {note.instrument for note in notes if note.instrument}
    return [name for name in programs if name in names] + sorted(names - programs.keys())


def midi_file(
    notes: Sequence[FileNote],
    pedal: Sequence[tuple[float, bool]],
    programs: Mapping[str, int],
    beat: Beat = DEFAULT_BEAT,
    only: str | None = None,
) -> bytes:
    """A file of type 1: a track of the tempo, then one for each instrument, with its name, its
    program, its own channel (shared from the 16th instrument on), and the pedal if it has one;
    one track without a name for notes without an instrument.

    Every note lasts at least a tick, as readers drop those that do not.

    Args:
        pedal: moves of the sustain pedal in order: seconds, and whether it is down. One that is
            down to the end is released with the last note.
        programs: of General MIDI, from 0; their order is that of the tracks.
        beat: the file's; the notes' times are the same with any.
        only: an instrument; the others are left out.
    """
    ends_s = [note.offset_s for note in notes if note.offset_s is not None]
    if pedal and pedal[-1][1]:  # the performance broke off
        pedal = [*pedal, (max([pedal[-1][0], *ends_s]), False)]
    last_s = max([0.0, *ends_s, *(time_s for time_s, _ in pedal)])
    tempo = TempoMap(beat)
    while tempo.tick(last_s) > MAX_TICK * 0.99:
        tempo = TempoMap(beat, tempo.ticks_per_beat // 2)
    file, least_s = tempo.empty_file(), 1.001 * tempo.longest_tick_s
    names = [name for name in played(notes, programs) if only in (None, name)]
    unnamed = only is None and any(note.instrument is None for note in notes)
    for name in [*([None] if unnamed or not names else []), *names]:
        part = Instrument(programs.get(name, 0) if name else 0, name=name or "")
        part.notes = [
            Note(note.velocity, note.pitch, note.onset_s, max(end_s, note.onset_s + least_s))
            for note in notes
            if note.instrument == name and (end_s := note.offset_s) is not None
        ]
        if name in PEDALLED or not names:
            part.control_changes = _pedal(pedal, least_s)
        file.instruments.append(part)
    memory = io.BytesIO()
    file.write(memory)
    return memory.getvalue()


def _pedal(moves: Iterable[tuple[float, bool]], least_s: float) -> list[ControlChange]:
    """Each move at least a tick after the one before: within a tick, readers may turn them."""
    changes: list[ControlChange] = []
    time_s = -least_s
    for move_s, down in moves:
        time_s = max(move_s, time_s + least_s)
        changes.append(ControlChange(SUSTAIN, 127 if down else 0, time_s))
    return changes
