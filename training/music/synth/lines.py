"""Melodic lines of bowed, blown and sung instruments.

The bank has single notes, each with its own attack. Slurred notes, in contrast, have no attack. In
a transition of 10 to 100 ms, pitch, level and spectrum change from one note to the next (J. Strawn,
Orchestral Instruments: Analysis of Performed Transitions, 1986). Other notes may start below their
pitch. All notes may swell.
"""

from dataclasses import dataclass

import numpy as np

from training.arrays import F32, F64, Bools, Rng
from training.music.notes import Notes

ALONE_S = 0.04  # notes that start within this time of each other form a chord, not a line
WIDEST = 12  # widest leap in semitones that may be slurred
GLIDE_SEMITONES = 3.0  # widest glide


@dataclass(frozen=True)
class Line:
    """Phrasing of a part. The fractions are from 0 to 1."""

    connected: float = 0.0  # fraction of notes that last until the next note starts
    slurred: float = 0.0  # fraction of connected notes whose successor has no attack of its own
    gliding: float = 0.0
    """Fraction of notes that glide to their pitch: slurred notes from the previous pitch, other
    notes from below."""
    swell_db: float = 0.0  # standard deviation of the change in level during a note


@dataclass(frozen=True)
class Phrasing:
    """Articulation of the n notes of a line. Arrays have the shape [n]."""

    connected: Bools  # true if the note lasts until the next note starts
    slurred: Bools  # true if the note has no attack
    left: Bools  # true if a slurred note follows
    transition_s: float  # duration of the crossfade from a note to the slurred note after it
    skipped_s: F64  # time after the onset at which playback of a slurred note's recording starts
    glide: F64  # initial pitch relative to the note's pitch, in semitones
    glide_s: F64  # time constants of the glides
    slope_db: F64  # change of level from the start of a note to its end
    swell_db: F64  # extra level in the middle of a note


def random_line(blown_or_bowed: bool, rng: Rng) -> Line:
    """Draw the phrasing of a part. If ``blown_or_bowed`` is false, as for an organ, notes may be
    connected, but are not slurred and do not glide or swell."""
    connected = float(rng.uniform(0, 1)) if rng.random() < 0.8 else 0.0
    if not blown_or_bowed:
        return Line(connected)
    slurred = float(rng.uniform(0, 1)) if rng.random() < 0.8 else 0.0
    return Line(connected, slurred, float(rng.beta(1, 3)), float(rng.uniform(0, 4)))


def apply_phrasing(notes: Notes, line: Line, rng: Rng) -> tuple[Notes, Phrasing]:
    """Return the notes of one part and their articulation. Some notes now last until the next note
    starts."""
    count = len(notes)
    connected = _followed(notes) & (rng.random(count) < line.connected)
    source = np.flatnonzero(connected)
    offset, released = notes.offset.copy(), notes.released.copy()
    offset[source] = released[source] = notes.onset[source + 1]
    step = np.abs(notes.pitch[source + 1] - notes.pitch[source])
    source = source[(step > 0) & (step <= WIDEST) & (rng.random(len(source)) < line.slurred)]
    slurred, left = np.zeros((2, count), bool)
    slurred[source + 1], left[source] = True, True
    glide = -rng.uniform(0.1, 0.7, count)
    away = notes.pitch[source] - notes.pitch[source + 1]
    glide[source + 1] = np.clip(away, -GLIDE_SEMITONES, GLIDE_SEMITONES)
    glide *= rng.random(count) < line.gliding
    glide_s = np.where(slurred, rng.uniform(0.005, 0.03, count), rng.uniform(0.015, 0.05, count))
    return notes.replaced(offset=offset, released=released), Phrasing(
        connected=connected,
        slurred=slurred,
        left=left,
        transition_s=float(rng.uniform(0.01, 0.1)),
        skipped_s=rng.uniform(0.1, 0.3, count),
        glide=glide,
        glide_s=glide_s,
        slope_db=np.clip(rng.normal(-0.5, 1, count) * line.swell_db, -15, 6),
        swell_db=np.clip(rng.normal(0.5, 1, count) * line.swell_db, -6, 8),
    )


def _followed(notes: Notes) -> Bools:
    """Return True for each note, [n], whose line the next note continues. Both notes must start
    alone, and all earlier notes must have ended when the next note starts."""
    if len(notes) < 2:
        return np.zeros(len(notes), bool)
    onset = notes.onset
    gap = np.diff(onset)
    is_apart = np.concatenate([[True], gap > ALONE_S, [True]])
    is_alone = is_apart[1:] & is_apart[:-1]
    earlier_end = np.maximum.accumulate(notes.offset)[:-2]
    have_ended = np.append(True, earlier_end <= onset[2:])
    held = (notes.offset[:-1] - onset[:-1]) / np.maximum(gap, 1e-9)
    # A shorter note is followed by a written rest, and a longer note belongs to another voice.
    follows = is_alone[:-1] & is_alone[1:] & have_ended & (held >= 0.5) & (held <= 1.2)
    return np.append(follows, False)


def add_glide(position: F64, step: float, semitones: float, constant_samples: float) -> None:
    """Make a note start ``semitones`` above its pitch and glide to it with the time constant
    ``constant_samples``. Changes, in place, the positions, [n], at which the recording is read.
    Without a glide, they increase by ``step`` stored samples per sample."""
    length = min(len(position), int(6 * constant_samples))
    if not length:
        return
    fall = np.exp(np.arange(length) / -constant_samples)
    moved = step * np.cumsum(2 ** (semitones / 12 * fall) - 1)
    position[:length] += moved
    position[length:] += moved[-1]


def add_swell(sound: F32, slope_db: float, swell_db: float) -> None:
    """Change, in place, the level during a note, [n]. For the arguments see ``Phrasing``."""
    along = np.linspace(0, 1, len(sound), dtype=np.float32)
    swell = np.sin(np.float32(np.pi) * along)
    level_db = np.float32(slope_db) * along + np.float32(swell_db) * swell
    sound *= np.power(np.float32(10), level_db / np.float32(20))
