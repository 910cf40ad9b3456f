"""A whole performance as a Standard MIDI File."""

from __future__ import annotations

import io
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import cycle

import mido

from model.instruments import PROGRAMS
from service.notes.events import Note, PedalPress
from service.notes.pedal import PEDALLED

TEMPO_US_PER_BEAT = 500_000  # 120 beats a minute
TICKS_PER_BEAT = 5_000  # 0.1 ms a tick: no time is off by more than 0.05 ms
_TICKS_PER_S = TICKS_PER_BEAT * 1_000_000 // TEMPO_US_PER_BEAT
_OFF_VELOCITY = 64  # the standard's value for "not measured"
_SUSTAIN = 64  # controller number
_CHANNELS = tuple(channel for channel in range(16) if channel != 9)  # 9 is percussion's

Moment = tuple[int, int, mido.Message]
"""A tick, a rank within it, and what happens."""


def midi_file(notes: Iterable[Note], pedal: Sequence[PedalPress] = ()) -> bytes:
    """At 120 beats per minute; the same notes give the same bytes.

    Of type 1: a track of the tempo, then one for each instrument, by class number, with its name,
    its program, a channel of its own (from the 16th instrument on they share), and the pedal where
    it has one. Notes without an instrument make a file of type 0: one track, one channel. Every
    note lasts a tick at least, as readers drop those that do not.
    """
    by_instrument: defaultdict[str | None, list[Note]] = defaultdict(list)
    for note in notes:
        by_instrument[note.instrument].append(note)
    names = [name for name in PROGRAMS if name in by_instrument]
    tempo: Moment = (0, 0, mido.MetaMessage("set_tempo", tempo=TEMPO_US_PER_BEAT))
    unnamed = _moments(by_instrument[None], () if names else pedal, _CHANNELS[0])
    tracks = [_track([tempo, *unnamed])]
    for name, channel in zip(names, cycle(_CHANNELS)):
        moments = _moments(by_instrument[name], pedal if name in PEDALLED else (), channel)
        tracks.append(_track(moments, name, channel))
    buffer = io.BytesIO()
    file = mido.MidiFile(type=min(1, len(names)), ticks_per_beat=TICKS_PER_BEAT, tracks=tracks)
    file.save(file=buffer)
    return buffer.getvalue()


def _moments(notes: Iterable[Note], pedal: Iterable[PedalPress], channel: int) -> list[Moment]:
    """The messages of a track. Within a tick, ends precede beginnings, so that a re-struck note
    does not end at once, and the pedal precedes both."""
    moments: list[Moment] = []
    for press in pedal:
        for tick, value in zip(_ticks(press), (127, 0), strict=True):
            message = mido.Message("control_change", control=_SUSTAIN, value=value, channel=channel)
            moments.append((tick, 0, message))
    for note in notes:
        onset, offset = _ticks(note)
        on = mido.Message("note_on", note=note.pitch, velocity=note.velocity, channel=channel)
        off = mido.Message("note_off", note=note.pitch, velocity=_OFF_VELOCITY, channel=channel)
        moments += [(onset, 2, on), (offset, 1, off)]
    return moments


def _ticks(span: Note | PedalPress) -> tuple[int, int]:
    onset = round(span.onset_s * _TICKS_PER_S)
    return onset, max(onset + 1, round(span.offset_s * _TICKS_PER_S))


def _track(moments: Iterable[Moment], name: str = "", channel: int = 0) -> mido.MidiTrack:
    track = mido.MidiTrack()
    if name:
        track.append(mido.MetaMessage("track_name", name=name))
        track.append(mido.Message("program_change", program=PROGRAMS[name], channel=channel))
    now = 0
    for tick, _, message in sorted(moments, key=_order):
        track.append(message.copy(time=tick - now))
        now = tick
    track.append(mido.MetaMessage("end_of_track", time=0))
    return track


def _order(moment: Moment) -> tuple[int, int, bytes]:
    tick, rank, message = moment
    return tick, rank, bytes(message.bytes())
