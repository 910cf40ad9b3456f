"""Models a piano's dampers, sustain pedal, key and pedal noise, and sympathetic resonance.

The damping of a string depends on how long and how firmly its damper has touched the string.
:func:`contact_time` integrates both, which models half and late pedalling and quick changes.
"""

import json
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy import signal

from model.config import SAMPLE_RATE
from training.arrays import F32, F64, Rng
from training.music.notes import Notes, next_of_same_pitch, with_pedal
from training.music.recordings import read_audio

FREE_DEPTH, HELD_DEPTH = 0.2, 0.85
"""Pedal depths, 0 to 1. Dampers rest fully on the strings up to the first depth, and do not touch
them from the second on."""
PEDAL_LONGEST_S = 8.0  # longer presses are split; 1 % of the presses in performances are longer
HALF_DEPTH = (0.3, 0.75)  # range of the depths of a half pedal


def random_pedal(notes: Notes, rng: Rng) -> F64:
    """Draw pedal presses, [n, 2], for a score without pedal. The performer releases the pedal at
    some onsets, and presses it again shortly after each of these."""
    changes = [0.0]
    gap_s = rng.uniform(0.4, 3.0, max(1, len(notes)))
    for onset in notes.onset:
        if onset - changes[-1] >= gap_s[len(changes) % len(gap_s)]:
            changes.append(float(onset))
    times = np.array(changes)
    if len(times) < 2:
        return np.zeros((0, 2))
    begin = times[:-1] + rng.uniform(0.04, 0.15) * rng.uniform(0.5, 1.5, len(times) - 1)
    presses = np.stack([begin, times[1:] + rng.uniform(-0.04, 0.015)], axis=1)
    return presses[rng.random(len(presses)) < rng.uniform(0.4, 1.0)]


def split_long_presses(pedal: F64) -> F64:
    """Split presses, [n, 2], that exceed PEDAL_LONGEST_S, by releasing the pedal for 120 ms."""
    count = np.maximum(1, np.ceil((pedal[:, 1] - pedal[:, 0]) / PEDAL_LONGEST_S)).astype(int)
    part = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
    length = np.repeat((pedal[:, 1] - pedal[:, 0]) / count, count)
    begin = np.repeat(pedal[:, 0], count) + part * length
    is_last = part == np.repeat(count, count) - 1
    return np.stack([begin, begin + length - np.where(is_last, 0, 0.12)], axis=1)


def pedal_depths(pedal: F64, rng: Rng) -> F64:
    """Draw the depths of presses, [n, 2]. Return presses with depths, [m, 3] (begin s, end s, depth
    0..1). Some presses are only halfway, and some become two: a full press, then a half press."""
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
    """Extend notes that end during a press, [n, 3], to the end of the press. As in MIDI, only
    presses with a depth of at least 0.5 count."""
    return with_pedal(notes, pedal[pedal[:, 2] >= 0.5, :2])


def pedal_depth(pedal: F64, length: int) -> F64:
    """Return the pedal's depth at each of ``length`` samples, from presses, [n, 3] (begin s, end s,
    depth). The depth changes linearly during the 30 ms after each begin and end."""
    depth = np.zeros(length)
    for begin, end, target in pedal:
        depth[max(0, round(begin * SAMPLE_RATE)) : max(0, round(end * SAMPLE_RATE))] = target
    travel = round(0.03 * SAMPLE_RATE)
    total = np.cumsum(np.concatenate([np.full(travel, depth[0]), depth]))
    return (total[travel:] - total[:-travel]) / travel


def _contact(depth: F64) -> F64:
    """Return the contact of dampers and strings, 0 (none) to 1 (full), at a depth 0..1."""
    return np.asarray(np.clip((HELD_DEPTH - depth) / (HELD_DEPTH - FREE_DEPTH), 0, 1) ** 2)


def contact_time(depth: F64) -> F32:
    """Return for each sample, [length], how long the dampers of released keys have touched the
    strings since the start, in seconds of full contact."""
    return (np.cumsum(_contact(depth)) / SAMPLE_RATE).astype(np.float32)


def stretch_cents(pitch: NDArray[np.integer]) -> F64:
    """Return a tuned piano's deviation from equal temperament, in cents, at MIDI pitches, [n].
    Strings are inharmonic, so stretched octaves beat least (after O. L. Railsback, JASA 9,
    1938). Here the lowest key is 19 cents flat, and the highest is 32 cents sharp."""
    distance = (pitch - 60) / 48.0
    return np.asarray(32 * np.sign(distance) * np.abs(distance) ** 2.5)


LONGEST_S, SHORTEST_S = 2.0, 0.025  # limits of the time constants of damping
RESIDUE_RATIO = 4  # time constant of the residue relative to that of the damper
RESTRIKE_CONSTANTS = 5  # number of time constants until a new stroke has its full effect


class Dampers:
    """Random dampers of one piano. They damp middle C by 60 dB in 0.4 s (new felts of a concert
    grand) to 2.8 s (felts of an old upright piano)."""

    def __init__(self, rng: Rng) -> None:
        self.middle_s = float(np.exp(rng.uniform(np.log(0.06), np.log(0.4))))
        """Time constant of the amplitude of the low partials at middle C."""
        self.bass_semitones = float(rng.uniform(7, 16))
        """Downward interval from middle C in which the time constant doubles."""
        self.treble_semitones = float(rng.uniform(16, 40))
        """Upward interval from middle C in which the time constant halves."""
        self.treble_power = int(rng.integers(1, 4))  # factor by which high partials decay faster
        self.residue = float(10 ** (rng.uniform(-40, -12) / 20))
        """Fraction of the amplitude that decays RESIDUE_RATIO times more slowly."""
        self.highest = int(rng.integers(88, 92))  # highest MIDI pitch with a damper
        self.delay_s = float(rng.uniform(0.0, 0.06))  # time from key release to damper contact
        self.restrike_s = float(rng.uniform(0.007, 0.02))
        """Time constant with which a new stroke of the hammer stops the string's old vibration."""
        self.restrike_residue = float(rng.uniform(0.1, 0.5))
        """Fraction of the old vibration that remains after a new stroke."""

    def time_constants(self, pitch: NDArray[np.integer]) -> F64:
        """Return the time of full contact in which each note, [n], decays by 8.7 dB, in seconds.
        Lower strings are heavier and decay more slowly. The time is infinite without a damper."""
        above = pitch - 60.0
        octave = np.where(above < 0, self.bass_semitones, self.treble_semitones)
        constant = np.clip(self.middle_s * 2.0 ** (-above / octave), SHORTEST_S, LONGEST_S)
        return np.where(pitch > self.highest, np.inf, constant)


class Dampings:
    """Decay of a piano's notes. The damper, which the pedal may lift, damps a string once its key
    is released. A new stroke stops most of the string's old vibration. The damper damps the rest
    once the key is released again. contact_s: [samples], :func:`contact_time` of the excerpt."""

    def __init__(self, notes: Notes, dampers: Dampers, contact_s: F32) -> None:
        last = len(contact_s) - 1

        def sample(time: F64) -> NDArray[np.intp]:
            return np.rint(np.minimum(time * SAMPLE_RATE, last)).astype(np.intp)

        self._dampers, self._contact_s = dampers, contact_s
        self._constant_s = dampers.time_constants(notes.pitch)
        self._frequency = 440 * 2.0 ** ((notes.pitch - 69) / 12)
        again = next_of_same_pitch(notes.pitch, notes.onset)
        onset = np.append(notes.onset, np.inf)
        released = np.append(notes.released + dampers.delay_s, np.inf)
        self._struck = sample(onset[again])
        self.begin = np.minimum(sample(released[:-1]), self._struck)
        """Sample at which each note, [n], starts to decay."""
        # Contact time at which a note, including its residue, has decayed by 40 dB.
        decay = 2 * np.log(10)
        constants = float(max(decay, RESIDUE_RATIO * (decay + np.log(dampers.residue))))
        silent_contact_s = contact_s[self.begin] + constants * self._constant_s
        end = np.searchsorted(contact_s, silent_contact_s)
        # A new stroke before this end lifts the damper until the key is released again.
        self._damped_again = sample(released[again])
        rest_s = silent_contact_s - contact_s[self._struck]
        later_end = np.searchsorted(contact_s, rest_s + contact_s[self._damped_again])
        # The stroke after the new stroke stops the rest.
        after_next = np.append(again, len(notes))[again]
        restrike = int(RESTRIKE_CONSTANTS * dampers.restrike_s * SAMPLE_RATE)
        later_end = np.minimum(later_end, sample(onset[after_next]) + restrike)
        end = np.where(end > self._struck, np.maximum(later_end, self._struck), end)
        self.end = np.where(end > last, last + 1, end)  # sample at which each note is silent
        faded_contact_s = contact_s[self.begin] + 3.5 * self._constant_s  # decay by 30 dB
        faded_s = np.searchsorted(contact_s, faded_contact_s) / SAMPLE_RATE
        faded_s = np.where(faded_contact_s > contact_s[-1], np.inf, faded_s)
        self.gone_s = np.maximum(notes.released, faded_s)
        """Time in seconds at which each note, [n], becomes inaudible, perhaps before its offset."""

    def apply(self, note: int, sound: F32) -> None:
        """Damp, in place, the samples of a note from its ``begin`` on."""
        begin = int(self.begin[note])
        contact_s = self._contact_s[begin : begin + len(sound)]
        contact_s = contact_s - contact_s[0]
        struck = int(self._struck[note]) - begin
        if struck < len(sound):  # the damper is up from the new stroke to the new release
            damped_again = min(int(self._damped_again[note]) - begin, len(sound) - 1)
            new_contact_s = np.maximum(contact_s[struck:] - contact_s[damped_again], 0)
            contact_s[struck:] = contact_s[struck] + new_contact_s
            self._restrike(sound[struck:])
        touched = int(np.searchsorted(contact_s, 0, side="right"))
        if touched < len(sound) and np.isfinite(self._constant_s[note]):
            self._damp(note, sound[touched:], contact_s[touched:])
        if begin + len(sound) < len(self._contact_s):  # avoid a click within the excerpt
            fade = min(len(sound), int(0.02 * SAMPLE_RATE))
            sound[len(sound) - fade :] *= np.linspace(1, 0, fade, dtype=np.float32)

    def _damp(self, note: int, sound: F32, contact_s: F32) -> None:
        """Damp ``sound`` in place. A one-pole filter separates low partials from partials above 2.5
        times the fundamental. Low partials have a damped part and a slower residue. High partials
        decay faster, because felt stops short waves first."""
        constant_s, frequency = float(self._constant_s[note]), float(self._frequency[note])
        residue = np.float32(self._dampers.residue)
        slow_gain = np.exp(contact_s * np.float32(-1 / (RESIDUE_RATIO * constant_s)))
        low_gain = np.square(np.square(slow_gain))  # slow_gain ** RESIDUE_RATIO
        high_gain = low_gain**self._dampers.treble_power
        low_gain *= 1 - residue
        low_gain += residue * slow_gain
        pole = float(np.exp(-2 * np.pi * 2.5 * frequency / SAMPLE_RATE))
        taps = np.array([1 - pole], np.float32), np.array([1, -pole], np.float32)
        low = signal.lfilter(*taps, sound)
        # high_gain * (sound - low) + low_gain * low, computed in place
        low_gain -= high_gain
        low *= low_gain
        sound *= high_gain
        sound += low

    def _restrike(self, old: F32) -> None:
        """Reduce, in place, the old vibration of a string from the moment of a new stroke."""
        restrike_s, rest = self._dampers.restrike_s, np.float32(self._dampers.restrike_residue)
        time = np.arange(int(RESTRIKE_CONSTANTS * restrike_s * SAMPLE_RATE), dtype=np.float32)
        gain = np.exp(time * np.float32(-1 / (restrike_s * SAMPLE_RATE)))
        old[: len(gain)] *= rest + (1 - rest) * gain[: len(old)]
        old[len(gain) :] *= rest


Mechanics = dict[str, list[tuple[int, F32]]]
"""Recorded noises by kind: "release" (of a key), "pedal_down" and "pedal_up". Each noise has the
MIDI pitch of its key (0 for the pedal) and samples with a peak of 1."""


def load_mechanics(folder: Path) -> Mechanics | None:
    """Read ``releases/`` in a bank's folder. Return None if there is no index."""
    index = folder / "releases" / "releases.json"
    if not index.exists():
        return None
    noises: Mechanics = {}
    for entry in json.loads(index.read_text())["sets"].values():
        audio, _ = read_audio(folder / entry["file"])
        for note in entry["notes"]:
            sound = audio[note["start"] : note["start"] + note["length"]]
            peak = np.float32(max(1e-6, float(np.abs(sound).max())))
            noises.setdefault(note["kind"], []).append((note["key"] or 0, sound / peak))
    return noises


def mechanics_noise(mechanics: Mechanics, notes: Notes, pedal: F64, length: int, rng: Rng) -> F32:
    """Return the noises, float32 [length], of all key releases and pedal movements, for music with
    a peak of 1. pedal: presses, [m, 3]. Deeper presses are louder."""
    out = np.zeros(length, np.float32)
    keys_db = float(rng.uniform(-55, -38))  # about 30 to 40 dB below a single note
    pedal_db = keys_db + float(rng.uniform(-6, 6))

    def add(sound: F32, time_s: float, level_db: float) -> None:
        at = int(time_s * SAMPLE_RATE)
        if 0 <= at < length:
            gain = np.float32(10 ** ((level_db + 3 * rng.standard_normal()) / 20))
            sound = sound[: length - at]
            out[at : at + len(sound)] += gain * sound

    keys = np.array([key for key, _ in mechanics["release"]])
    nearest = np.abs(notes.pitch[:, None] - keys[None, :]).argmin(axis=1)
    for index, released_s in zip(nearest, notes.released, strict=True):
        add(mechanics["release"][index][1], float(released_s), keys_db)
    for begin, end, depth in pedal:
        level_db = pedal_db + 20 * np.log10(max(0.1, depth))
        for kind, time_s in (("pedal_down", begin), ("pedal_up", end)):
            sounds = mechanics[kind]
            add(sounds[rng.integers(len(sounds))][1], float(time_s), level_db)
    return out


STRINGS = range(21, 109)  # MIDI pitches of the strings that resonate
RESPONSES = 3  # number of simulated pianos, each computed once per process


@lru_cache(RESPONSES)
def _strings_response(variant: int) -> F32:
    """Return the impulse response of all undamped strings of a piano. Each string resonates at its
    first six partials. The lowest string decays by 60 dB in 15 s, and the highest in 1.5 s."""
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
    """Return the sound, float32 [n], of the strings that resonate with ``audio``, [n]. The depth of
    the pedal, [n], determines how freely they resonate. A4 is ``tuning_cents`` above 440 Hz."""
    response = _strings_response(int(rng.integers(RESPONSES)))
    position = np.arange(len(response)) * 2 ** (tuning_cents / 1200)
    response = np.interp(position, np.arange(len(response)), response, right=0).astype(np.float32)
    level_db, fade_s = rng.uniform(-30, -15), rng.uniform(0.08, 0.4)
    free = (1 - _contact(depth)).astype(np.float32)
    driven = audio * free
    rung = np.asarray(signal.oaconvolve(driven, response)[: len(audio)], np.float32)
    # The gain follows ``free`` upwards at once, and downwards with a time constant of fade_s.
    fall = np.arange(len(audio)) / (fade_s * SAMPLE_RATE)
    rung *= np.exp(np.maximum.accumulate(np.log(free + 1e-6) + fall) - fall).astype(np.float32)
    before, after = float(np.linalg.norm(driven)), float(np.linalg.norm(rung))
    return rung * np.float32(10 ** (level_db / 20) * before / max(1e-9, after))
