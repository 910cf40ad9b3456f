"""Standard MIDI Files, for the service and its clients: the same notes give the same bytes.

mido writes them: pretty_midi writes no tempo changes and chooses the channels itself.
"""

import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import mido

TICKS_PER_BEAT = 480
"""1.04 ms per tick at 120 BPM. pretty_midi takes a file of over ten million ticks for damaged: with
these that is 2.9 hours."""
PEDALLED = ("piano", "electric piano")
CHANNELS = tuple(channel for channel in range(16) if channel != 9)  # 9 is percussion's
SUSTAIN = 64  # controller number
_OFF_VELOCITY = 64  # the standard's value for "not measured"
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

    def __init__(self, beat: Beat) -> None:
        self._us = round(1e6 * beat.period_s)
        lead_s = beat.first_s % beat.period_s
        if 0 < lead_s < 60 / FASTEST_BPM:
            lead_s += beat.period_s
        self._lead_us = round(1e6 * lead_s)
        self.changes = [(0, self._lead_us), (TICKS_PER_BEAT, self._us)]
        if self._lead_us == 0:
            self.changes = [(0, self._us)]

    def tick(self, time_s: float) -> int:
        us = 1e6 * time_s
        if us < self._lead_us:
            return round(TICKS_PER_BEAT * us / self._lead_us)
        lead_ticks = TICKS_PER_BEAT if self._lead_us else 0
        return lead_ticks + round(TICKS_PER_BEAT * (us - self._lead_us) / self._us)


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
    """The file: without instruments of type 0, one track on one channel.

    With instruments it is of type 1: a track of the tempo, and one for each instrument with its
    name, its program, its own channel (shared from the 16th instrument on), and the pedal if it has
    one. Every note lasts at least a tick, as readers drop those that do not.

    Args:
        pedal: moves of the sustain pedal in order: seconds, and whether it is down. One that is
            down to the end is released with the last note.
        programs: of General MIDI, from 0; their order is that of the tracks.
        beat: the file's; the notes' times are the same with any.
        only: an instrument; the others are left out.
    """
    tempo = TempoMap(beat)
    if pedal and pedal[-1][1]:  # the performance broke off
        ends_s = [note.offset_s for note in notes if note.offset_s is not None]
        pedal = [*pedal, (max([pedal[-1][0], *ends_s]), False)]
    names = [name for name in played(notes, programs) if only in (None, name)]
    moments: list[_Moment] = [
        (tick, 0, mido.MetaMessage("set_tempo", tempo=us)) for tick, us in tempo.changes
    ]
    if only is None:
        unnamed = [note for note in notes if note.instrument is None]
        moments += _strokes(unnamed, () if names else pedal, CHANNELS[0], tempo)
    tracks = [_track(moments)]
    for place, name in enumerate(names):
        channel = CHANNELS[place % len(CHANNELS)]
        own = [note for note in notes if note.instrument == name]
        track = _track(_strokes(own, pedal if name in PEDALLED else (), channel, tempo))
        program = mido.Message("program_change", program=programs.get(name, 0), channel=channel)
        tracks.append(mido.MidiTrack([mido.MetaMessage("track_name", name=name), program, *track]))
    file = io.BytesIO()
    kind = 1 if names else 0
    mido.MidiFile(type=kind, tracks=tracks, ticks_per_beat=TICKS_PER_BEAT).save(file=file)
    return file.getvalue()


_Moment = tuple[int, int, Any]
"""A tick, a rank within it, and a message."""


def _strokes(
    notes: Iterable[FileNote], pedal: Iterable[tuple[float, bool]], channel: int, tempo: TempoMap
) -> list[_Moment]:
    """The messages of a track. Within a tick, the pedal comes first, and ends precede beginnings,
    so that a re-struck note does not end at once."""
    moments: list[_Moment] = []
    for time_s, down in pedal:
        value = 127 if down else 0
        message = mido.Message("control_change", control=SUSTAIN, value=value, channel=channel)
        moments.append((tempo.tick(time_s), 1, message))
    for note in notes:
        if note.offset_s is not None:
            onset = tempo.tick(note.onset_s)
            offset = max(onset + 1, tempo.tick(note.offset_s))
            on = mido.Message("note_on", note=note.pitch, velocity=note.velocity, channel=channel)
            off = mido.Message("note_off", note=note.pitch, velocity=_OFF_VELOCITY, channel=channel)
            moments += [(onset, 3, on), (offset, 2, off)]
    return moments


def _track(moments: Iterable[_Moment]) -> Any:
    """The messages with their delta times, in an order that does not depend on theirs."""
    track = mido.MidiTrack()
    now = 0
    for tick, _, message in sorted(moments, key=_order):
        track.append(message.copy(time=tick - now))
        now = tick
    return track


def _order(moment: _Moment) -> tuple[int, int, int, int]:
    tick, rank, message = moment
    return tick, rank, getattr(message, "note", 0), getattr(message, "velocity", 0)
