"""MIDI files whose notes bend: MIDI Polyphonic Expression (MPE), a channel for each sounding note.

A pitch bend moves all notes of its channel, so notes that sound at once are spread over the member
channels of an MPE zone; its master channel has what concerns all, such as the pedal. Sequencers
that know MPE show the bends of each note; other synthesisers play them too, as the range of the
bends is stated for every channel (RPN 0).
"""

import bisect
import io
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

import mido

from model.config import HOP, SAMPLE_RATE

FRAME_S = HOP / SAMPLE_RATE
MASTER = 0
MEMBERS = (*range(1, 9), *range(10, 16))  # 9 is percussion's for readers without MPE
RANGE_SEMITONES = 48  # MPE's usual
_UNITS = 8192 / (100 * RANGE_SEMITONES)  # of pitch bend, in a cent
_LEAST_CENTS = 1.0  # a smaller change is not written
_ZONE, _RANGE = 6, 0  # registered parameters


class BentNote(Protocol):
    """``bends``: cents above the pitch from the onset on, one a frame."""

    @property
    def pitch(self) -> int: ...
    @property
    def onset_s(self) -> float: ...
    @property
    def offset_s(self) -> float | None: ...
    @property
    def bends(self) -> Sequence[float] | None: ...


def bent(file: bytes, notes: Iterable[BentNote]) -> bytes:
    """A MIDI file of these notes, of those that have ended, with their bends."""
    midi = mido.MidiFile(file=io.BytesIO(file))
    ticks = _Ticks(midi)
    waiting: dict[int, list[BentNote]] = defaultdict(list)  # by pitch, the next one last
    for note in sorted(notes, key=lambda note: note.onset_s, reverse=True):
        if note.offset_s is not None:
            waiting[note.pitch].append(note)
    # All messages in order, as channels are shared by the tracks.
    moments = [
        (tick, place, track, message)
        for track, messages in enumerate(midi.tracks)
        for place, (tick, message) in enumerate(_absolute(messages))
        if message.type != "end_of_track"
    ]
    moments.sort(key=lambda moment: (moment[0], _begins(moment[3]), *moment[1:3]))
    out: list[list[tuple[int, Any]]] = [[] for _ in midi.tracks]
    out[0] += [(0, message) for message in _setup()]
    programs: dict[int, int] = {}  # by track
    played: dict[int, int] = {}  # program by channel
    sounding: dict[tuple[int, int], int] = {}  # channel by track and pitch
    free = list(MEMBERS)  # the longest silent first
    for tick, _, track, message in moments:
        if message.is_meta or not hasattr(message, "channel"):
            out[track].append((tick, message))
        elif message.type == "program_change":
            programs[track] = message.program
            out[track].append((tick, message.copy(channel=MASTER)))
        elif message.type in ("note_on", "note_off") and not _begins(message):
            channel = sounding.pop((track, message.note), MASTER)
            out[track].append((tick, message.copy(channel=channel)))
            if channel not in sounding.values():
                free.append(channel)
        elif _begins(message):
            channel = free.pop(0) if free else MEMBERS[message.note % len(MEMBERS)]
            sounding[track, message.note] = channel
            program = programs.get(track, 0)
            if played.get(channel, 0) != program:
                played[channel] = program
                change = mido.Message("program_change", program=program, channel=channel)
                out[track].append((tick, change))
            struck = waiting[message.note].pop() if waiting[message.note] else None
            bends = _bends(struck, channel, tick, ticks)
            out[track] += [bends[0], (tick, message.copy(channel=channel)), *bends[1:]]
        else:
            out[track].append((tick, message.copy(channel=MASTER)))
    midi.tracks = [_relative(messages) for messages in out]
    written = io.BytesIO()
    midi.save(file=written)
    return written.getvalue()


def _begins(message: Any) -> bool:
    return message.type == "note_on" and message.velocity > 0


def _setup() -> list[Any]:
    """The zone and the range of its channels."""
    return [
        *_parameter(MASTER, _ZONE, 15),
        *(m for channel in MEMBERS for m in _parameter(channel, _RANGE, RANGE_SEMITONES)),
    ]


def _parameter(channel: int, number: int, value: int) -> list[Any]:
    controls = ((101, 0), (100, number), (6, value), (101, 127), (100, 127))
    return [
        mido.Message("control_change", channel=channel, control=control, value=level)
        for control, level in controls
    ]


def _bends(
    note: BentNote | None, channel: int, onset: int, ticks: "_Ticks"
) -> list[tuple[int, Any]]:
    """The pitch bends of a note, the first at its onset."""
    curve = list((note.bends if note is not None else None) or (0.0,))
    out = [(onset, _bend(channel, curve[0]))]
    last = curve[0]
    for number, cents in enumerate(curve):
        if note is not None and abs(cents - last) >= _LEAST_CENTS:
            tick = max(onset, ticks.at(note.onset_s + number * FRAME_S))
            out.append((tick, _bend(channel, cents)))
            last = cents
    return out


def _bend(channel: int, cents: float) -> Any:
    units = min(8191, max(-8192, round(cents * _UNITS)))
    return mido.Message("pitchwheel", channel=channel, pitch=units)


class _Ticks:
    """Ticks of the times of a file, by its tempo changes."""

    def __init__(self, midi: Any) -> None:
        changes = [
            (tick, message.tempo)
            for track in midi.tracks
            for tick, message in _absolute(track)
            if message.type == "set_tempo"
        ]
        self._per_beat = midi.ticks_per_beat
        self._ticks, self._tempos, self._seconds = [0], [500_000], [0.0]
        for tick, tempo in sorted(changes):
            seconds = self._seconds[-1] + (tick - self._ticks[-1]) * self._tick_s(-1)
            self._ticks.append(tick)
            self._tempos.append(tempo)
            self._seconds.append(seconds)

    def at(self, time_s: float) -> int:
        place = bisect.bisect_right(self._seconds, time_s) - 1
        return self._ticks[place] + round((time_s - self._seconds[place]) / self._tick_s(place))

    def _tick_s(self, place: int) -> float:
        return float(self._tempos[place]) / 1e6 / self._per_beat


def _absolute(track: Iterable[Any]) -> list[tuple[int, Any]]:
    out, now = [], 0
    for message in track:
        now += message.time
        out.append((now, message))
    return out


def _relative(messages: list[tuple[int, Any]]) -> Any:
    track, now = mido.MidiTrack(), 0
    for tick, message in sorted(messages, key=lambda moment: moment[0]):  # stable
        track.append(message.copy(time=tick - now))
        now = tick
    return track
