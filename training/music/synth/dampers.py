"""Dampers and the sustain pedal: how the sound of a string ends.

How far a sound is damped depends on how long and how firmly its damper has rested on the strings:
:func:`contact_time` integrates that over an excerpt once, and :func:`damp` reads every note's decay
from the integral. This covers half pedals, late pedals and quick changes.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import signal

from training.arrays import F32, F64, Rng
from training.music.notes import Notes, merged, next_strokes, with_pedal

PEDAL_TRAVEL_S = 0.03  # a pedal moves between its depths in this time
FREE_DEPTH, HELD_DEPTH = 0.2, 0.85
"""Pedal depths up to which dampers rest fully on the strings, and from which they are clear."""
SUSTAIN_DEPTH = 0.5
"""From this depth on a pedal counts as down, as in MIDI (controller 64 at 64 or more)."""
PEDAL_CHANGE_S = 0.12  # a pedal stays up for this long when a long press is changed
HALF_PEDAL = 0.3  # share of the players who use half the pedal
FULL_DEPTH = (0.85, 1.0)
HALF_DEPTH = (0.3, 0.75)


def invented_pedal(notes: Notes, rng: Rng) -> F64:
    """Pedal presses [n, 2] for a score that has none: changed at some onsets, after the note."""
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


def changed_pedal(pedal: F64, longest_s: float) -> F64:
    """Presses [n, 2], those of over ``longest_s`` changed in between, as a player would."""
    count = np.maximum(1, np.ceil((pedal[:, 1] - pedal[:, 0]) / longest_s)).astype(int)
    number = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
    length = np.repeat((pedal[:, 1] - pedal[:, 0]) / count, count)
    begin = np.repeat(pedal[:, 0], count) + number * length
    last = number == np.repeat(count, count) - 1
    return np.stack([begin, begin + length - np.where(last, 0, PEDAL_CHANGE_S)], axis=1)


def pedal_depths(pedal: F64, rng: Rng) -> F64:
    """A depth for each press of [n, 2]: [m, 3] of begin s, end s and depth 0..1; some players press
    halfway for some chords, or let the pedal rise halfway before its end."""
    half = rng.uniform(0.2, 0.6) if rng.random() < HALF_PEDAL else 0.0
    rows = []
    for begin, end in pedal:
        depth = rng.uniform(*FULL_DEPTH)
        kind = rng.random()
        if kind < half / 2:
            depth = rng.uniform(*HALF_DEPTH)
        elif kind < half:
            turn = rng.uniform(begin, end)
            rows.append((begin, turn, depth))
            begin, depth = turn, rng.uniform(*HALF_DEPTH)
        rows.append((begin, end, depth))
    return np.array(rows).reshape(-1, 3)


def held_by_pedal(notes: Notes, pedal: F64) -> Notes:
    """Extend notes whose keys are released while a pedal [n, 3] is down to the pedal's release; for
    one pressed later the note has ended, as MIDI has it."""
    return with_pedal(notes, merged(pedal[pedal[:, 2] >= SUSTAIN_DEPTH, :2]))


def contact(depth: F64) -> F64:
    """How firmly dampers rest at a pedal depth 0..1: 1 is fully, 0 clear of the strings."""
    return np.asarray(np.clip((HELD_DEPTH - depth) / (HELD_DEPTH - FREE_DEPTH), 0, 1) ** 2)


def pedal_depth(pedal: F64, length: int, sample_rate: int) -> F64:
    """The pedal's depth at each of ``length`` samples, from presses [n, 3] (begin s, end s, depth);
    it moves linearly for PEDAL_TRAVEL_S after each begin and end."""
    depth = np.zeros(length)
    for begin, end, target in pedal:
        depth[max(0, round(begin * sample_rate)) : max(0, round(end * sample_rate))] = target
    travel = max(1, round(PEDAL_TRAVEL_S * sample_rate))
    total = np.cumsum(np.concatenate([np.full(travel, depth[0]), depth]))
    return (total[travel:] - total[:-travel]) / travel


def contact_time(depth: F64, sample_rate: int) -> F32:
    """Seconds of full contact that dampers of released keys have had until each sample [length]."""
    return (np.cumsum(contact(depth)) / sample_rate).astype(np.float32)


MIDDLE_PITCH = 60
LONGEST_S = 2.0  # upper limit of the time constant, even for the lowest string
SHORTEST_S = 0.025
RESIDUE_RATIO = 4  # time constant of the residue, in those of the damper
SPLIT_PARTIALS = 2.5  # partials above this multiple of the fundamental count as high
TAIL_DB = 40.0  # a damped note is rendered until it has fallen by this
TAIL_FADE_S = 0.02
RESTRIKE_CONSTANTS = 5  # a stroke takes full effect within this many time constants
FADED = 3.5  # time constants (30 dB) after which a note under half a pedal counts as gone


@dataclass(frozen=True)
class Dampers:
    """The dampers of one instrument, in one state of regulation."""

    middle_s: float = 0.12  # time constant of the amplitude of the low partials at middle C
    bass_semitones: float = 14.0  # semitones below middle C over which the time constant doubles
    treble_semitones: float = 24.0  # semitones above middle C over which it halves
    treble_power: int = 2  # high partials are damped this much faster
    residue: float = 0.06
    """Share of the amplitude that felt does not reach at once: it fades RESIDUE_RATIO times as
    slowly."""
    highest: int = 90  # MIDI pitch of the last note that has a damper; the strings above ring on
    delay_s: float = 0.02  # from the release of the key until the felt touches the string
    restrike_s: float = 0.015
    """Time constant with which the hammer of the same note stops the string's old motion."""
    restrike_residue: float = 0.25
    """Share of the old motion that the hammer leaves in a string without damper."""

    def time_constants(self, pitch: NDArray[np.integer]) -> F64:
        """Seconds of full contact in which each note [n] falls by 8.7 dB; inf without damper. The
        lower a string, the more mass the same felt has to stop."""
        above = pitch - float(MIDDLE_PITCH)
        octave = np.where(above < 0, self.bass_semitones, self.treble_semitones)
        constant = np.clip(self.middle_s * 2.0 ** (-above / octave), SHORTEST_S, LONGEST_S)
        return np.where(pitch > self.highest, np.inf, constant)

    @property
    def tail(self) -> float:
        """Time constants until both the damper's exponential and the residue's are TAIL_DB down."""
        fall = TAIL_DB / 20 * np.log(10)
        return float(max(fall, RESIDUE_RATIO * (fall + np.log(self.residue))))


def random_dampers(rng: Rng) -> Dampers:
    """From a concert grand's new felts to an old upright's: middle C falls by 60 dB within 0.4 to
    2.8 s."""
    return Dampers(
        middle_s=float(np.exp(rng.uniform(np.log(0.06), np.log(0.4)))),
        bass_semitones=float(rng.uniform(7, 16)),
        treble_semitones=float(rng.uniform(16, 40)),
        treble_power=int(rng.integers(1, 4)),
        residue=float(10 ** (rng.uniform(-40, -12) / 20)),
        highest=int(rng.integers(88, 92)),
        delay_s=float(rng.uniform(0.0, 0.06)),
        restrike_s=float(rng.uniform(0.007, 0.02)),
        restrike_residue=float(rng.uniform(0.1, 0.5)),
    )


def damp(
    sound: F32,
    contact_s: F32,
    constant_s: float,
    frequency: float,
    dampers: Dampers,
    sample_rate: int,
) -> None:
    """Let the damper fall on a sound [n] of ``frequency`` Hz, in place.

    ``contact_s`` [n] is the contact since the damper fell. The low partials follow two
    exponentials, the damper's and the residue's; those above SPLIT_PARTIALS times the fundamental,
    split off by a one-pole filter, fall faster, as felt stops short waves first.
    """
    slow = np.exp(contact_s * np.float32(-1 / (RESIDUE_RATIO * constant_s)))
    full = np.square(np.square(slow))
    high = full**dampers.treble_power
    residue = np.float32(dampers.residue)
    full *= 1 - residue
    slow *= residue
    full += slow  # the gain of the low partials
    pole = float(np.exp(-2 * np.pi * SPLIT_PARTIALS * frequency / sample_rate))
    low = signal.lfilter(np.array([1 - pole], np.float32), np.array([1, -pole], np.float32), sound)
    full -= high
    low *= full
    sound *= high
    sound += low


def restrike(sound: F32, at: int, dampers: Dampers, sample_rate: int) -> None:
    """Strike a sounding string again at sample ``at``, in place: the hammer stops most of its old
    motion; the rest rings on beneath the new note."""
    time = np.arange(int(RESTRIKE_CONSTANTS * dampers.restrike_s * sample_rate), dtype=np.float32)
    gain = np.exp(time * np.float32(-1 / (dampers.restrike_s * sample_rate)))
    left = np.float32(dampers.restrike_residue)
    old = sound[at:]
    old[: len(gain)] *= left + (1 - left) * gain[: len(old)]
    old[len(gain) :] *= left


RELEASE_TIME_CONSTANTS = 5.0  # a release is rendered until it is 43 dB down


class Releases:
    """Notes that fade by one exponential from their offset on: bowed, blown or plucked ones."""

    def __init__(self, notes: Notes, release_s: float, sample_rate: int) -> None:
        length = int(RELEASE_TIME_CONSTANTS * release_s * sample_rate)
        self.begin = np.rint(notes.offset * sample_rate).astype(np.intp)
        """Sample at which each note [n] begins to fall."""
        self.end = self.begin + length  # sample at which it is over
        self.gone_s = np.full(len(notes), np.inf)
        """Second by which it is inaudible, if that comes before its offset."""
        time = np.arange(length + 1, dtype=np.float32)
        self._gain = np.exp(-time / np.float32(release_s * sample_rate))

    def apply(self, note: int, sound: F32) -> None:
        """Let ``sound``, the samples of a note from ``begin`` on, fall in place."""
        sound *= self._gain[: len(sound)]


class Dampings:
    """Notes of a piano, each of which ends by its damper, the pedal or its next stroke.
    ``contact_s`` [samples] is :func:`contact_time` of the excerpt. A string that is struck again
    while it sounds keeps some of its motion beneath the new note, whose release damps it too."""

    def __init__(self, notes: Notes, dampers: Dampers, contact_s: F32, sample_rate: int) -> None:
        last = len(contact_s) - 1

        def sample(time: F64) -> NDArray[np.intp]:
            return np.rint(np.minimum(time * sample_rate, last)).astype(np.intp)

        self._dampers, self._rate, self._contact_s = dampers, sample_rate, contact_s
        self._constant_s = dampers.time_constants(notes.pitch)
        self._frequency = 440 * 2.0 ** ((notes.pitch - 69) / 12)
        again = next_strokes(notes.pitch, notes.onset)
        struck = np.append(notes.onset, np.inf)[again]
        released = np.append(notes.released + dampers.delay_s, np.inf)
        self._struck = sample(struck)
        self.begin = np.minimum(sample(released[:-1]), self._struck)
        # The contact it takes to silence each note; some of it comes before the next stroke.
        target = contact_s[self.begin] + dampers.tail * self._constant_s
        self.end = np.searchsorted(contact_s, target)
        self._damped_again = sample(released[again])
        rest = target - contact_s[self._struck] + contact_s[self._damped_again]
        after_next = np.append(again, len(notes))[again]
        over = sample(np.append(notes.onset, np.inf)[after_next]) + int(
            RESTRIKE_CONSTANTS * dampers.restrike_s * sample_rate
        )
        later = np.minimum(np.searchsorted(contact_s, rest), over)
        self.end = np.where(self.end > self._struck, np.maximum(later, self._struck), self.end)
        self.end = np.where(self.end > last, last + 1, self.end)
        faded = contact_s[self.begin] + FADED * self._constant_s
        gone_s = np.searchsorted(contact_s, faded) / sample_rate
        self.gone_s = np.maximum(notes.released, np.where(faded > contact_s[-1], np.inf, gone_s))

    def apply(self, note: int, sound: F32) -> None:
        """As in :class:`Releases`."""
        begin = int(self.begin[note])
        contact_s = self._contact_s[begin : begin + len(sound)]
        contact_s = contact_s - contact_s[0]
        struck = int(self._struck[note]) - begin
        if struck < len(sound):  # the new stroke lifts the damper until its own key is released
            again = min(int(self._damped_again[note]) - begin, len(sound) - 1)
            rest = np.maximum(contact_s[struck:] - contact_s[again], 0)
            contact_s[struck:] = contact_s[struck] + rest
            restrike(sound, struck, self._dampers, self._rate)
        constant_s = float(self._constant_s[note])
        touched = int(np.searchsorted(contact_s, 0, side="right"))
        if touched < len(sound) and np.isfinite(constant_s):
            damp(
                sound[touched:],
                contact_s[touched:],
                constant_s,
                float(self._frequency[note]),
                self._dampers,
                self._rate,
            )
        if begin + len(sound) < len(self._contact_s):
            fade = min(len(sound), int(TAIL_FADE_S * self._rate))
            sound[len(sound) - fade :] *= np.linspace(1, 0, fade, dtype=np.float32)
