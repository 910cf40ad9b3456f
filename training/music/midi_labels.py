"""Notes of MIDI files as labels, from the key stroke until key and pedal are released.

A sustain pedal acts on its own channel, regardless of the track (MIDI 1.0). Some instruments record
the pedal on a separate channel: a pedal on a channel without notes therefore holds the notes of
every channel that has no pedal of its own. pretty_midi does not keep the channels; mido does.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import mido
import numpy as np

from model.instruments import class_of
from service.protocol.midi_file import SUSTAIN
from training.music.label_tables import LabelError
from training.music.metrics import NoteList, note_list

DRUMS = 9  # the channel of percussion in General MIDI, counted from 0
PRESSED = 64  # smallest value that means down
TEMPO = 500_000  # default microseconds per beat


@dataclass(frozen=True)
class _Note:
    onset_s: float
    offset_s: float
    pitch: int
    velocity: int
    program: int
    """General MIDI program; -1 if the file names none."""


@dataclass
class _Channel:
    notes: list[_Note] = field(default_factory=list)
    pedal: list[tuple[float, bool]] = field(default_factory=list)
    """Seconds, and whether the pedal is down from then on."""

    @property
    def pressed(self) -> bool:
        return any(down for _, down in self.pedal)


def read_midi(path: Path) -> NoteList:
    """Notes of a MIDI file, without drums, lengthened by the sustain pedal; with instruments if the
    file names programs. Raises LabelError."""
    try:
        file = mido.MidiFile(path)
        channels = _channels(file)
    except (OSError, ValueError, EOFError, LookupError, mido.KeySignatureError) as error:
        raise LabelError(f"cannot read {path}: {error}") from error
    apart = [change for channel in channels if not channel.notes for change in channel.pedal]
    rows = [
        (note.onset_s, end_s, note.pitch, note.velocity, class_of(note.program))
        for channel in channels
        for note, end_s in _held(channel.notes, channel.pedal if channel.pressed else apart)
    ]
    return note_list(np.array(rows).reshape(-1, 5))


def _channels(file: mido.MidiFile) -> list[_Channel]:
    """Notes and pedal by channel. Raises ValueError for a file not timed in beats."""
    if file.ticks_per_beat <= 0:
        raise ValueError("its time is not counted in beats")
    ticks, seconds, tempi = _tempo_map(file)
    channels: defaultdict[int, _Channel] = defaultdict(_Channel)
    programs: dict[int, int] = {}  # by channel
    for track in file.tracks:
        struck: defaultdict[tuple[int, int], list[tuple[float, int, int]]] = defaultdict(list)
        tick = 0
        for message in track:
            tick += message.time
            if message.is_meta or getattr(message, "channel", DRUMS) == DRUMS:
                continue
            last = bisect_right(ticks, tick) - 1
            now_s = seconds[last] + (tick - ticks[last]) * tempi[last]
            channel = channels[message.channel]
            if message.type == "control_change" and message.control == SUSTAIN:
                channel.pedal.append((now_s, message.value >= PRESSED))
            elif message.type == "program_change":
                programs[message.channel] = message.program
            elif message.type in ("note_on", "note_off"):
                key = struck[message.channel, message.note]
                if message.type == "note_on" and message.velocity:
                    key.append((now_s, message.velocity, programs.get(message.channel, -1)))
                    continue
                # A note struck at this very tick goes on if the event ends an earlier one.
                ended = [strike for strike in key if strike[0] < now_s]
                channel.notes += [_Note(on_s, now_s, message.note, v, p) for on_s, v, p in ended]
                key[:] = key[len(ended) :] if ended else []
    return list(channels.values())


def _tempo_map(file: mido.MidiFile) -> tuple[list[int], list[float], list[float]]:
    """For each tempo: its first tick and second, and the seconds per tick."""
    changes = {0: TEMPO}
    for track in file.tracks:
        tick = 0
        for message in track:
            tick += message.time
            if message.type == "set_tempo":
                changes[tick] = message.tempo
    ticks, seconds, tempi = [0], [0.0], [1e-6 * changes[0] / file.ticks_per_beat]
    for tick in sorted(changes)[1:]:
        seconds.append(seconds[-1] + (tick - ticks[-1]) * tempi[-1])
        ticks.append(tick)
        tempi.append(1e-6 * changes[tick] / file.ticks_per_beat)
    return ticks, seconds, tempi


def _held(notes: list[_Note], pedal: list[tuple[float, bool]]) -> Iterator[tuple[_Note, float]]:
    """Notes with the time until which the pedal holds them, at most until the next stroke."""
    pedal = sorted(pedal, key=lambda change: change[0])
    moments = [time_s for time_s, _ in pedal]
    releases = [time_s for time_s, down in pedal if not down]
    strikes: defaultdict[int, list[float]] = defaultdict(list)
    for note in sorted(notes, key=lambda note: note.onset_s):
        strikes[note.pitch].append(note.onset_s)
    last_s = max([note.offset_s for note in notes] + moments[-1:], default=0.0)
    for note in notes:
        end_s = note.offset_s
        before = bisect_right(moments, end_s)
        if before and pedal[before - 1][1]:
            release = bisect_right(releases, end_s)
            end_s = releases[release] if release < len(releases) else last_s
        again = strikes[note.pitch][bisect_right(strikes[note.pitch], note.onset_s) :][:1]
        yield note, max(note.offset_s, min([end_s, *again]))
