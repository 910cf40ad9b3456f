"""Writes Standard MIDI Files for the service and its clients. Equal notes result in equal files."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

import mido
from pretty_midi.pretty_midi import MAX_TICK

from model.config import HOP, SAMPLE_RATE
from model.instruments import LABELS
from service.protocol.tempo import DEFAULT_TEMPO, Tempo, TempoMap, TimedMessage, track_of

PEDAL_INSTRUMENTS = ("piano", "electric piano")  # instruments with a sustain pedal
CHANNELS = tuple(channel for channel in range(16) if channel != 9)  # 9 is for percussion
SUSTAIN = 64  # controller number

# MIDI Polyphonic Expression (MPE): a bend applies to all notes of its channel, so concurrent notes
# have different member channels of a zone. A message on the master channel applies to all of them.
# Synthesisers without MPE play the bends too, because RPN 0 sets the bend range of each channel.
MASTER = 0
MEMBERS = CHANNELS[1:]
RANGE_SEMITONES = 48  # maximum bend, the default of MPE
_UNITS = 8192 / (100 * RANGE_SEMITONES)  # units of pitch bend per cent
_MIN_CENTS = 1.0  # minimum change of a bend that is written
FRAME_S = HOP / SAMPLE_RATE
_ENDS, _SETS, _BEGINS = range(3)  # order within a tick: note ends, settings, note onsets


class FileNote(Protocol):
    """Note to be written to a file. Notes without an offset are omitted."""

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


class WrittenNote(FileNote, Protocol):
    """Note to be written with its bends: cents above its pitch for each frame from its onset on."""

    @property
    def bends(self) -> Sequence[float] | None: ...


def midi_file(
    notes: Sequence[WrittenNote],
    pedal: Sequence[tuple[float, bool]],
    programs: Mapping[str, int],
    tempo: Tempo = DEFAULT_TEMPO,
) -> bytes:
    """Return a file of type 1, with a tempo track and a named track for each instrument.

    Notes without an instrument have a track without a name. Each track has its own channel up to
    the 15th, and later tracks share channels. If notes have bends, all tracks use the channels of
    MPE instead. Every note lasts at least a tick, because readers drop shorter notes.

    Args:
        pedal: changes of the sustain pedal in order: time in s, and True if the pedal goes down. A
            pedal that stays down is released with the last note. Only PEDAL_INSTRUMENTS use it, or
            all notes if none has an instrument.
        programs: General MIDI program, from 0, of each instrument, in the order of the tracks.
        tempo: beats, bars and key of the file. They do not affect the times of the notes.
    """
    notes = sorted(notes, key=lambda note: (note.onset_s, note.pitch, note.velocity))
    ends_s = [note.offset_s for note in notes if note.offset_s is not None]
    if pedal and pedal[-1][1]:  # the performance ended with the pedal down
        pedal = [*pedal, (max([pedal[-1][0], *ends_s]), False)]
    last_s = max([0.0, *ends_s, *(time_s for time_s, _ in pedal)])
    tempo_map = TempoMap(tempo)
    while tempo_map.tick(last_s) > MAX_TICK * 0.99:
        tempo_map = TempoMap(tempo, tempo_map.ticks_per_beat // 2)
    order = {name: index for index, name in enumerate([None, *programs])}
    in_use = {note.instrument for note in notes} or {None}
    names = sorted(in_use, key=lambda name: (order.get(name, len(order)), name or ""))
    parts = {
        name: _Part(LABELS.get(name or "", name or ""), programs.get(name or "", 0))
        for name in names
    }
    for note in notes:
        if note.offset_s is not None:
            parts[note.instrument].notes.append(note)
    for name, part in parts.items():
        if name in PEDAL_INSTRUMENTS or names == [None]:
            part.pedal = _pedal(pedal, tempo_map.tick)
    file, memory = mido.MidiFile(ticks_per_beat=tempo_map.ticks_per_beat), io.BytesIO()
    file.tracks.append(tempo_map.track())
    if any(note.bends for note in notes):
        file.tracks[0][:0] = mpe_setup()
        file.tracks += _bent_tracks([*parts.values()], tempo_map.tick)
    else:
        file.tracks += [
            _plain_track(part, CHANNELS[number % len(CHANNELS)], tempo_map.tick)
            for number, part in enumerate(parts.values())
        ]
    file.save(file=memory)
    return memory.getvalue()


@dataclass(slots=True)
class _Part:
    """Notes of an instrument, and its pedal: tick and True if the pedal goes down."""

    name: str
    program: int
    notes: list[WrittenNote] = field(default_factory=list)
    pedal: list[tuple[int, bool]] = field(default_factory=list)


def _pedal(
    changes: Iterable[tuple[float, bool]], tick_of: Callable[[float], int]
) -> list[tuple[int, bool]]:
    """Return the changes of the pedal with their ticks. They have different ticks, because readers
    may reorder the messages of a tick."""
    ticks: list[tuple[int, bool]] = []
    for time_s, down in changes:
        ticks.append((max(tick_of(time_s), ticks[-1][0] + 1 if ticks else 0), down))
    return ticks


def _span(note: WrittenNote, tick_of: Callable[[float], int]) -> tuple[int, int]:
    """Return the first tick of a note, and the tick of its end."""
    begin = tick_of(note.onset_s)
    return begin, max(tick_of(note.offset_s or 0.0), begin + 1)


def _plain_track(part: _Part, channel: int, tick_of: Callable[[float], int]) -> mido.MidiTrack:
    """Return the track of a part whose notes have no bends."""
    messages: list[TimedMessage] = [
        (0, _ENDS, mido.MetaMessage("track_name", name=part.name)),
        (0, _ENDS, mido.Message("program_change", program=part.program, channel=channel)),
    ]
    messages += [(tick, _SETS, _sustain(channel, down)) for tick, down in part.pedal]
    for note in part.notes:
        begin, end = _span(note, tick_of)
        messages.append((begin, _BEGINS, _note(channel, note.pitch, note.velocity)))
        messages.append((end, _ENDS, _note(channel, note.pitch, 0)))
    return track_of(messages)


def _bent_tracks(parts: Sequence[_Part], tick_of: Callable[[float], int]) -> list[mido.MidiTrack]:
    """Return a track for each part. The notes of all tracks share the member channels of MPE.

    The pedal is on the master channel if all parts use it. Otherwise it is on the member channels
    of the parts that use it, so that it does not sustain the notes of other parts.
    """
    tracks: list[list[TimedMessage]] = []
    # Tick, kind (0: note, 1: pedal), part number, and note, or True if the pedal goes down.
    moments: list[tuple[int, int, int, Any]] = []
    all_use_pedal = all(part.pedal for part in parts)
    for number, part in enumerate(parts):
        tracks.append([(0, _ENDS, mido.MetaMessage("track_name", name=part.name))])
        moments += [(tick_of(note.onset_s), 0, number, note) for note in part.notes]
        if all_use_pedal:
            tracks[-1] += [(tick, _SETS, _sustain(MASTER, down)) for tick, down in part.pedal]
        else:
            moments += [(tick, 1, number, down) for tick, down in part.pedal]
    # State of the pedal on the member channels of each part, then on unused channels.
    pedals = [False] * (len(parts) + 1)
    users = dict.fromkeys(CHANNELS, len(parts))  # number of the part that used the channel last
    silent_from = dict.fromkeys(MEMBERS, 0)
    for tick, kind, number, item in sorted(moments, key=lambda moment: moment[:3]):
        track = tracks[number]
        if kind == 1:
            pedals[number] = item
            used = [channel for channel in CHANNELS if users[channel] == number]
            track += [(tick, _SETS, _sustain(channel, item)) for channel in used]
            continue
        begin, end = _span(item, tick_of)
        # Prefer a silent channel of this part, then the one silent for longest. If none is silent,
        # write the note without bends, because they would apply to another note.
        silent = [channel for channel in MEMBERS if silent_from[channel] <= begin]
        channel = min(silent, key=lambda c: (users[c] != number, silent_from[c]), default=MASTER)
        silent_from[channel] = end
        if (before := users[channel]) != number:
            users[channel] = number
            program = parts[number].program
            message = mido.Message("program_change", program=program, channel=channel)
            track.append((begin, _SETS, message))
            if pedals[before] != pedals[number]:
                track.append((begin, _SETS, _sustain(channel, pedals[number])))
        cents = item.bends if item.bends and channel != MASTER else (0.0,)
        track.append((begin, _SETS, bend(channel, cents[0])))
        track.append((begin, _BEGINS, _note(channel, item.pitch, item.velocity)))
        current = cents[0]
        for frame, value in enumerate(cents):
            if abs(value - current) >= _MIN_CENTS:
                bend_tick = max(begin, tick_of(item.onset_s + frame * FRAME_S))
                track.append((bend_tick, _SETS, bend(channel, value)))
                current = value
        track.append((end, _ENDS, _note(channel, item.pitch, 0)))
    return [track_of(track) for track in tracks]


def mpe_setup() -> list[mido.Message]:
    """Return the messages that set up a zone of MPE and the bend range of its channels."""
    # Channel, number (RPN) and value of each parameter: the zone's 15 member channels (channel 9
    # stays unused), and the bend range.
    parameters = [(MASTER, 6, 15), *((channel, 0, RANGE_SEMITONES) for channel in MEMBERS)]
    return [
        _control(channel, control, level)
        for channel, number, value in parameters
        for control, level in ((101, 0), (100, number), (6, value), (101, 127), (100, 127))
    ]


# Without the checks of mido, files of many messages are written twice as fast.
_message = partial(mido.Message, skip_checks=True)


def _control(channel: int, number: int, value: int) -> mido.Message:
    return _message("control_change", channel=channel, control=number, value=value)


def _sustain(channel: int, down: bool) -> mido.Message:
    return _control(channel, SUSTAIN, 127 if down else 0)


def _note(channel: int, pitch: int, velocity: int) -> mido.Message:
    return _message("note_on", channel=channel, note=pitch, velocity=velocity)


def bend(channel: int, cents: float) -> mido.Message:
    units = min(8191, max(-8192, round(cents * _UNITS)))
    return _message("pitchwheel", channel=channel, pitch=units)
