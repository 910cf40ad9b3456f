"""Notes of MIDI files as labels, from the key stroke until key and pedal are released.

A sustain pedal acts on its own channel, regardless of the track (MIDI 1.0). Some instruments record
the pedal on a separate channel: a pedal on a channel without notes therefore holds the notes of
every channel that has no pedal of its own. pretty_midi does not keep the channels; mido does.
"""

from bisect import bisect_right
from collections import defaultdict
from pathlib import Path

import mido
import numpy as np
from numpy.typing import NDArray

from model.instruments import class_of
from service.protocol.midi_file import SUSTAIN
from training.music.label_tables import LabelError
from training.music.metrics import NoteList, note_list

DRUMS = 9  # the channel of percussion in General MIDI, counted from 0
PRESSED = 64  # smallest value that means down
TEMPO = 500_000  # default microseconds per beat


Row = tuple[float, float, int, int, int]
"""Onset s, offset s, pitch, velocity, class of the instrument."""
Change = tuple[float, bool]
"""Second, and whether the pedal is down from then on."""


def read_midi(path: Path) -> NoteList:
    """Notes of a MIDI file, without drums, lengthened by the sustain pedal; with instruments if the
    file names programs. Raises LabelError."""
    try:
        channels = _channels(mido.MidiFile(path))
    except (OSError, ValueError, EOFError, LookupError, mido.KeySignatureError) as error:
        raise LabelError(f"cannot read {path}: {error}") from error
    apart = [change for notes, pedal in channels if not notes for change in pedal]
    parts = [np.zeros((0, 5))]
    for notes, pedal in channels:
        pressed = any(down for _, down in pedal)
        parts.append(_held(np.array(notes, float).reshape(-1, 5), pedal if pressed else apart))
    return note_list(np.concatenate(parts))


def _channels(file: mido.MidiFile) -> list[tuple[list[Row], list[Change]]]:
    """Notes and pedal by channel. Raises ValueError for a file not timed in beats."""
    if file.ticks_per_beat <= 0:
        raise ValueError("its time is not counted in beats")
    ticks, seconds, tempi = _tempo_map(file)
    channels: defaultdict[int, tuple[list[Row], list[Change]]] = defaultdict(lambda: ([], []))
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
            notes, pedal = channels[message.channel]
            if message.type == "control_change" and message.control == SUSTAIN:
                pedal.append((now_s, message.value >= PRESSED))
            elif message.type == "program_change":
                programs[message.channel] = message.program
            elif message.type in ("note_on", "note_off"):
                key = struck[message.channel, message.note]
                if message.type == "note_on" and message.velocity:
                    player = class_of(programs.get(message.channel, -1))
                    key.append((now_s, message.velocity, player))
                    continue
                # A note struck at this very tick goes on if the event ends an earlier one.
                ended = [strike for strike in key if strike[0] < now_s]
                notes += [(on_s, now_s, message.note, v, player) for on_s, v, player in ended]
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


def _held(notes: NDArray[np.float64], pedal: list[Change]) -> NDArray[np.float64]:
    """Rows [n, 5] that end when the pedal releases them, at most at the next stroke."""
    if not len(notes):
        return notes
    onset, offset, pitch = notes[:, :3].T
    moment, down = np.array(sorted(pedal, key=lambda change: change[0])).reshape(-1, 2).T
    held = np.append(down, 0)[np.searchsorted(moment, offset, side="right") - 1] > 0
    release = np.append(moment[down == 0], max(offset.max(), moment.max(initial=0)))
    released = release[np.searchsorted(release[:-1], offset, side="right")]
    struck, stroke = np.unique(notes[:, [2, 0]], axis=0, return_inverse=True)
    later = np.append(np.where(np.diff(struck[:, 0]) == 0, struck[1:, 1], np.inf), np.inf)
    again = later[stroke.reshape(-1)]
    notes[:, 1] = np.maximum(offset, np.minimum(np.where(held, released, offset), again))
    return notes
