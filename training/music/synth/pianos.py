"""Models parts of a piano: its dampers, sustain pedal, key noise and sympathetic resonance.

How far a damper has damped a string depends on how long and how firmly it has touched it, which
:func:`contact_time` integrates. This models half pedalling, late pedals and quick changes.
"""

import json
from functools import lru_cache
from pathlib import Path

import numpy as np
import soundfile
from numpy.typing import NDArray
from scipy import signal

from model.config import SAMPLE_RATE
from training.arrays import F32, F64, Rng
from training.music.notes import Notes, next_strokes, with_pedal

FREE_DEPTH, HELD_DEPTH = 0.2, 0.85
"""Up to the first depth of the pedal, dampers rest fully on the strings; from the second on, they
do not touch them."""
PEDAL_LONGEST_S = 8.0  # longer presses are split; 1 in 100 presses by people is longer
HALF_DEPTH = (0.3, 0.75)


def random_pedal(notes: Notes, rng: Rng) -> F64:
    """Draw pedal presses [n, 2] for a score that has none. At some onsets the pedal is released,
    and pressed again shortly after them."""
    changes = [0.0]
    wanted = rng.uniform(0.4, 3.0, max(1, len(notes)))
    for onset in notes.onset:
        if onset - changes[-1] >= wanted[len(changes) % len(wanted)]:
            changes.append(float(onset))
    times = np.array(changes)
    if len(times) < 2:
        return np.zeros((0, 2))
    begin = times[:-1] + rng.uniform(0.04, 0.15) * rng.uniform(0.5, 1.5, len(times) - 1)
    presses = np.stack([begin, times[1:] + rng.uniform(-0.04, 0.015)], axis=1)
    return presses[rng.random(len(presses)) < rng.uniform(0.4, 1.0)]


def split_long_presses(pedal: F64) -> F64:
    """Split presses [n, 2] longer than PEDAL_LONGEST_S by releasing the pedal for 120 ms."""
    count = np.maximum(1, np.ceil((pedal[:, 1] - pedal[:, 0]) / PEDAL_LONGEST_S)).astype(int)
    number = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
    length = np.repeat((pedal[:, 1] - pedal[:, 0]) / count, count)
    begin = np.repeat(pedal[:, 0], count) + number * length
    last = number == np.repeat(count, count) - 1
    return np.stack([begin, begin + length - np.where(last, 0, 0.12)], axis=1)


def pedal_depths(pedal: F64, rng: Rng) -> F64:
    """Return presses [m, 3] (begin s, end s, depth 0..1) for presses [n, 2]. Some players press the
    pedal halfway for some chords, or let it rise halfway before its release."""
    half = rng.uniform(0.2, 0.6) if rng.random() < 0.3 else 0.0
    rows = []
    for begin, end in pedal:
        depth = rng.uniform(HELD_DEPTH, 1.0)
        kind = rng.random()
        if kind < half / 2:
            depth = rng.uniform(*HALF_DEPTH)
        elif kind < half:
            turn = rng.uniform(begin, end)
            rows.append((begin, turn, depth))
            begin, depth = turn, rng.uniform(*HALF_DEPTH)
        rows.append((begin, end, depth))
    return np.array(rows).reshape(-1, 3)


def extend_by_pedal(notes: Notes, pedal: F64) -> Notes:
    """Extend notes whose keys are released while the pedal [n, 3] is down to its release. As in
    MIDI, it is down from a depth of one half. A pedal pressed after a note's end has no effect."""
    return with_pedal(notes, pedal[pedal[:, 2] >= 0.5, :2])


def pedal_depth(pedal: F64, length: int) -> F64:
    """Return the pedal's depth at each of ``length`` samples, from presses [n, 3] (begin s, end s,
    depth). It moves linearly during the 30 ms after each begin and end."""
    depth = np.zeros(length)
    for begin, end, target in pedal:
        depth[max(0, round(begin * SAMPLE_RATE)) : max(0, round(end * SAMPLE_RATE))] = target
    travel = round(0.03 * SAMPLE_RATE)
    total = np.cumsum(np.concatenate([np.full(travel, depth[0]), depth]))
    return (total[travel:] - total[:-travel]) / travel


def _contact(depth: F64) -> F64:
    """Return how firmly dampers touch the strings at a pedal depth 0..1: 1 fully, 0 not at all."""
    return np.asarray(np.clip((HELD_DEPTH - depth) / (HELD_DEPTH - FREE_DEPTH), 0, 1) ** 2)


def contact_time(depth: F64) -> F32:
    """Return for each sample [length] for how many seconds dampers of released keys have been in
    full contact; partial contact counts in part."""
    return (np.cumsum(_contact(depth)) / SAMPLE_RATE).astype(np.float32)


def stretch_cents(pitch: NDArray[np.integer]) -> F64:
    """Return by how many cents the MIDI pitches [n] of a tuned piano differ from equal temperament.
    Because strings are inharmonic, octaves beat least when they are stretched (O. L. Railsback,
    JASA 9, 1938: about -30 cents at the lowest key and 30 at the highest)."""
    distance = (pitch - 60) / 48.0
    return np.asarray(32 * np.sign(distance) * np.abs(distance) ** 2.5)


LONGEST_S = 2.0  # upper limit of the time constant, even for the lowest string
SHORTEST_S = 0.025
RESIDUE_RATIO = 4  # the time constant of the residue is this many times as long
RESTRIKE_CONSTANTS = 5  # time constants within which a new stroke takes full effect


class Dampers:
    """The dampers of one instrument. Middle C falls by 60 dB within 0.4 s (new felts of a concert
    grand) to 2.8 s (those of an old upright piano)."""

    def __init__(self, rng: Rng) -> None:
        self.middle_s = float(np.exp(rng.uniform(np.log(0.06), np.log(0.4))))
        """Time constant of the amplitude of the low partials at middle C."""
        self.bass_semitones = float(rng.uniform(7, 16))  # it doubles in this interval downwards
        self.treble_semitones = float(rng.uniform(16, 40))  # it halves in this interval upwards
        self.treble_power = int(rng.integers(1, 4))  # how much faster high partials are damped
        self.residue = float(10 ** (rng.uniform(-40, -12) / 20))
        """Share of the amplitude that the felt does not reach at once."""
        self.highest = int(rng.integers(88, 92))  # last MIDI pitch with a damper
        self.delay_s = float(rng.uniform(0.0, 0.06))  # from the key's release to the felt's touch
        self.restrike_s = float(rng.uniform(0.007, 0.02))
        """Time constant with which a new stroke of the hammer stops the string's old motion."""
        self.restrike_residue = float(rng.uniform(0.1, 0.5))
        """Share of the old motion that remains after a new stroke."""

    def time_constants(self, pitch: NDArray[np.integer]) -> F64:
        """Return the seconds of full contact in which each note [n] falls by 8.7 dB, infinite for
        notes without a damper. The lower a string, the more mass the felt has to stop."""
        above = pitch - 60.0
        octave = np.where(above < 0, self.bass_semitones, self.treble_semitones)
        constant = np.clip(self.middle_s * 2.0 ** (-above / octave), SHORTEST_S, LONGEST_S)
        return np.where(pitch > self.highest, np.inf, constant)


class Dampings:
    """How the notes of a piano end: by the damper, which the pedal may lift, or by the next stroke.
    A string that is struck again while it sounds keeps some of its motion beneath the new note,
    whose release damps it too. contact_s: [samples], :func:`contact_time` of the excerpt."""

    def __init__(self, notes: Notes, dampers: Dampers, contact_s: F32) -> None:
        last = len(contact_s) - 1

        def sample(time: F64) -> NDArray[np.intp]:
            return np.rint(np.minimum(time * SAMPLE_RATE, last)).astype(np.intp)

        self._dampers, self._contact_s = dampers, contact_s
        self._constant_s = dampers.time_constants(notes.pitch)
        self._frequency = 440 * 2.0 ** ((notes.pitch - 69) / 12)
        again = next_strokes(notes.pitch, notes.onset)
        onset = np.append(notes.onset, np.inf)
        released = np.append(notes.released + dampers.delay_s, np.inf)
        self._struck = sample(onset[again])
        self.begin = np.minimum(sample(released[:-1]), self._struck)
        """Sample at which each note [n] begins to fall."""
        # The contact that silences each note. Some of it may come before the next stroke.
        fall = 2 * np.log(10)  # 40 dB
        tail = float(max(fall, RESIDUE_RATIO * (fall + np.log(dampers.residue))))
        target = contact_s[self.begin] + tail * self._constant_s
        end = np.searchsorted(contact_s, target)
        self._damped_again = sample(released[again])
        rest = target - contact_s[self._struck] + contact_s[self._damped_again]
        after_next = np.append(again, len(notes))[again]
        replaced = int(RESTRIKE_CONSTANTS * dampers.restrike_s * SAMPLE_RATE)
        over = sample(onset[after_next]) + replaced
        later = np.minimum(np.searchsorted(contact_s, rest), over)
        end = np.where(end > self._struck, np.maximum(later, self._struck), end)
        self.end = np.where(end > last, last + 1, end)  # sample at which each note is silent
        faded = contact_s[self.begin] + 3.5 * self._constant_s  # 30 dB, with the pedal halfway down
        gone_s = np.searchsorted(contact_s, faded) / SAMPLE_RATE
        self.gone_s = np.maximum(notes.released, np.where(faded > contact_s[-1], np.inf, gone_s))
        """Time in seconds from which each note is inaudible, which may be before its offset."""

    def apply(self, note: int, sound: F32) -> None:
        """Damp ``sound``, the samples of a note from ``begin`` on, in place."""
        begin = int(self.begin[note])
        contact_s = self._contact_s[begin : begin + len(sound)]
        contact_s = contact_s - contact_s[0]
        struck = int(self._struck[note]) - begin
        if struck < len(sound):  # the new stroke lifts the damper until its own key is released
            again = min(int(self._damped_again[note]) - begin, len(sound) - 1)
            rest = np.maximum(contact_s[struck:] - contact_s[again], 0)
            contact_s[struck:] = contact_s[struck] + rest
            self._restrike(sound[struck:])
        touched = int(np.searchsorted(contact_s, 0, side="right"))
        if touched < len(sound) and np.isfinite(self._constant_s[note]):
            self._damp(note, sound[touched:], contact_s[touched:])
        if begin + len(sound) < len(self._contact_s):
            fade = min(len(sound), int(0.02 * SAMPLE_RATE))
            sound[len(sound) - fade :] *= np.linspace(1, 0, fade, dtype=np.float32)

    def _damp(self, note: int, sound: F32, contact_s: F32) -> None:
        """Damp ``sound`` in place. Low partials decay as the sum of two exponentials, of the damper
        and of the residue. Partials above 2.5 times the fundamental, split off by a one-pole
        filter, decay faster, as felt stops short waves first."""
        constant_s, frequency = float(self._constant_s[note]), float(self._frequency[note])
        slow = np.exp(contact_s * np.float32(-1 / (RESIDUE_RATIO * constant_s)))
        full = np.square(np.square(slow))
        high = full**self._dampers.treble_power
        residue = np.float32(self._dampers.residue)
        full *= 1 - residue
        slow *= residue
        full += slow  # the gain of the low partials
        pole = float(np.exp(-2 * np.pi * 2.5 * frequency / SAMPLE_RATE))
        taps = np.array([1 - pole], np.float32), np.array([1, -pole], np.float32)
        low = signal.lfilter(*taps, sound)
        full -= high
        low *= full
        sound *= high
        sound += low

    def _restrike(self, old: F32) -> None:
        """Reduce, in place, the motion of a string that the hammer strikes again; the rest rings on
        beneath the new note."""
        restrike_s, left = self._dampers.restrike_s, np.float32(self._dampers.restrike_residue)
        time = np.arange(int(RESTRIKE_CONSTANTS * restrike_s * SAMPLE_RATE), dtype=np.float32)
        gain = np.exp(time * np.float32(-1 / (restrike_s * SAMPLE_RATE)))
        old[: len(gain)] *= left + (1 - left) * gain[: len(old)]
        old[len(gain) :] *= left


Mechanics = dict[str, list[tuple[int, F32]]]
"""Recorded noises by kind ("release" of a key and its damper, "pedal_down", "pedal_up"), each with
the MIDI pitch of its key (0 for pedals) and samples with a peak of 1."""


def load_mechanics(folder: Path) -> Mechanics | None:
    """Read ``releases/`` of a bank's folder; None if the bank has none."""
    index = folder / "releases" / "releases.json"
    if not index.exists():
        return None
    noises: Mechanics = {}
    for entry in json.loads(index.read_text())["sets"].values():
        audio, _ = soundfile.read(folder / entry["file"], dtype="float32")
        for note in entry["notes"]:
            sound = audio[note["start"] : note["start"] + note["length"]]
            peak = np.float32(max(1e-6, float(np.abs(sound).max())))
            noises.setdefault(note["kind"], []).append((note["key"] or 0, sound / peak))
    return noises


def mechanics_noise(mechanics: Mechanics, notes: Notes, pedal: F64, length: int, rng: Rng) -> F32:
    """Return float32 [length] with the noise of each key at its release and of each move of the
    pedal [m, 3], relative to music with a peak of 1. A pedal that moves farther is louder."""
    out = np.zeros(length, np.float32)
    keys_db = float(rng.uniform(-55, -38))  # some 30 to 40 dB below a single note
    pedal_db = keys_db + float(rng.uniform(-6, 6))

    def add(sound: F32, second: float, level_db: float) -> None:
        at = int(second * SAMPLE_RATE)
        if 0 <= at < length:
            gain = np.float32(10 ** ((level_db + 3 * rng.standard_normal()) / 20))
            sound = sound[: length - at]
            out[at : at + len(sound)] += gain * sound

    keys = np.array([key for key, _ in mechanics["release"]])
    nearest = np.abs(notes.pitch[:, None] - keys[None, :]).argmin(axis=1)
    for which, second in zip(nearest, notes.released, strict=True):
        add(mechanics["release"][which][1], float(second), keys_db)
    for begin, end, depth in pedal:
        level_db = pedal_db + 20 * np.log10(max(0.1, depth))
        for kind, second in (("pedal_down", begin), ("pedal_up", end)):
            sounds = mechanics[kind]
            add(sounds[rng.integers(len(sounds))][1], float(second), level_db)
    return out


STRINGS = range(21, 109)  # MIDI pitches of the strings that resonate
RESPONSES = 3  # number of different pianos, each computed once per process


@lru_cache(RESPONSES)
def _strings_response(variant: int) -> F32:
    """Return the impulse response of all undamped strings of a piano. Each resonates at its first
    partials and decays by 60 dB, within about 15 s in the bass and 1.5 s in the treble."""
    rng = np.random.default_rng(variant)
    time = np.arange(2 * SAMPLE_RATE, dtype=np.float32) / SAMPLE_RATE
    response = np.zeros(len(time), np.float32)
    for pitch in STRINGS:
        fundamental = 440 * 2 ** ((pitch - 69 + rng.normal(0, 0.02)) / 12)
        decay = 6.9 / (15 * 2 ** (-(pitch - STRINGS.start) / 26))
        envelope = np.exp(-decay * time)
        for partial in range(1, 7):
            frequency = fundamental * partial
            if frequency > 0.45 * SAMPLE_RATE:
                break
            phase = rng.uniform(0, 2 * np.pi)
            level = rng.uniform(0.3, 1) / partial
            response += level * envelope * np.cos(2 * np.pi * frequency * time + phase)
    return response / np.float32(np.linalg.norm(response))


def sympathetic_resonance(audio: F32, depth: F64, tuning_cents: float, rng: Rng) -> F32:
    """Return the sound of the strings that resonate with ``audio``, float32 [n], as far as a pedal
    of ``depth`` [n] lifts their dampers. They are tuned ``tuning_cents`` from 440 Hz."""
    response = _strings_response(int(rng.integers(RESPONSES)))
    position = np.arange(len(response)) * 2 ** (tuning_cents / 1200)
    response = np.interp(position, np.arange(len(response)), response).astype(np.float32)
    level_db, fade_s = rng.uniform(-30, -15), rng.uniform(0.08, 0.4)
    free = (1 - _contact(depth)).astype(np.float32)
    driven = audio * free
    rung = np.asarray(signal.oaconvolve(driven, response)[: len(audio)], np.float32)
    # The gain follows ``free`` upwards at once, and downwards with the dampers' time constant.
    fall = np.arange(len(audio)) / (fade_s * SAMPLE_RATE)
    rung *= np.exp(np.maximum.accumulate(np.log(free + 1e-6) + fall) - fall).astype(np.float32)
    before, after = float(np.linalg.norm(driven)), float(np.linalg.norm(rung))
    return rung * np.float32(10 ** (level_db / 20) * before / max(1e-9, after))
