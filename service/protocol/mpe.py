"""MIDI files whose notes bend: MIDI Polyphonic Expression (MPE), a channel for each sounding note.

A pitch bend moves all notes of its channel, so notes that sound at once are spread over the member
channels of an MPE zone; its master channel has what concerns all, such as the pedal. Sequencers
that know MPE show the bends of each note; other synthesisers play them too, as the range of the
bends is stated for every channel (RPN 0).
"""

import io
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import mido
from pretty_midi import Instrument

from model.config import HOP, SAMPLE_RATE

FRAME_S = HOP / SAMPLE_RATE
MASTER = 0
MEMBERS = (*range(1, 9), *range(10, 16))  # 9 is percussion's for readers without MPE
RANGE_SEMITONES = 48  # MPE's usual
_UNITS = 8192 / (100 * RANGE_SEMITONES)  # of pitch bend, in a cent
_LEAST_CENTS = 1.0  # a smaller change is not written
_ZONE, _RANGE = 6, 0  # registered parameters
_ENDS, _SETS, _BEGINS = range(3)  # the order of messages in a tick

Moment = tuple[int, int, Any]
"""Tick, place in it, and message."""


def bent_file(
    conductor: mido.MidiTrack,
    parts: Sequence[tuple[Instrument, Sequence[Sequence[float] | None]]],
    ticks_per_beat: int,
    tick_of: Callable[[float], int],
) -> bytes:
    """A file whose first track is the conductor's, then one for each part.

    Args:
        parts: each with the bends of its notes, in the same order: cents above the pitch from the
            onset on, one a frame.
        tick_of: of a time in seconds.
    """
    file = mido.MidiFile(ticks_per_beat=ticks_per_beat)
    file.tracks.append(conductor)
    conductor[:0] = setup()
    tracks: list[list[Moment]] = []
    for part, _ in parts:
        name = mido.MetaMessage("track_name", name=part.name)
        pedal = [
            (tick_of(change.time), _SETS, _control(MASTER, change.number, change.value))
            for change in part.control_changes
        ]
        tracks.append([(0, _ENDS, name), *pedal])
    played = [
        (tick_of(note.start), number, note, bends)
        for number, (part, curves) in enumerate(parts)
        for note, bends in zip(part.notes, curves, strict=True)
    ]
    program = dict.fromkeys(MEMBERS, 0)
    silent_from = dict.fromkeys(MEMBERS, 0)
    for begin, number, note, bends in sorted(played, key=lambda one: one[:2]):
        track, wanted = tracks[number], parts[number][0].program
        # The longest silent, of that program if one is free.
        order = {c: (silent_from[c] > begin, program[c] != wanted, silent_from[c]) for c in MEMBERS}
        channel = min(MEMBERS, key=order.__getitem__)
        end = max(tick_of(note.end), begin + 1)
        silent_from[channel] = max(silent_from[channel], end)
        if program[channel] != wanted:
            program[channel] = wanted
            change = mido.Message("program_change", program=wanted, channel=channel)
            track.append((begin, _SETS, change))
        cents = bends or (0.0,)
        track.append((begin, _SETS, bend(channel, cents[0])))
        track.append((begin, _BEGINS, _note(channel, note.pitch, note.velocity)))
        last = cents[0]
        for frame, value in enumerate(cents):
            if abs(value - last) >= _LEAST_CENTS:
                at = max(begin, tick_of(note.start + frame * FRAME_S))
                track.append((at, _SETS, bend(channel, value)))
                last = value
        track.append((end, _ENDS, _note(channel, note.pitch, 0)))
    file.tracks += map(track_of, tracks)
    written = io.BytesIO()
    file.save(file=written)
    return written.getvalue()


def track_of(moments: Iterable[Moment]) -> mido.MidiTrack:
    """A track of messages at these ticks; those of the same place in a tick stay in their order."""
    track, now = mido.MidiTrack(), 0
    for tick, _, message in sorted(moments, key=lambda moment: moment[:2]):
        track.append(message.copy(time=tick - now))
        now = tick
    return track


def setup() -> list[mido.Message]:
    """The zone, and the range of its channels' bends."""
    return [
        *_parameter(MASTER, _ZONE, 15),
        *(m for channel in MEMBERS for m in _parameter(channel, _RANGE, RANGE_SEMITONES)),
    ]


def _parameter(channel: int, number: int, value: int) -> list[mido.Message]:
    controls = ((101, 0), (100, number), (6, value), (101, 127), (100, 127))
    return [_control(channel, control, level) for control, level in controls]


def _control(channel: int, number: int, value: int) -> mido.Message:
    return mido.Message("control_change", channel=channel, control=number, value=value)


def _note(channel: int, pitch: int, velocity: int) -> mido.Message:
    return mido.Message("note_on", channel=channel, note=pitch, velocity=velocity)


def bend(channel: int, cents: float) -> mido.Message:
    units = min(8191, max(-8192, round(cents * _UNITS)))
    return mido.Message("pitchwheel", channel=channel, pitch=units)
