"""Harmonicas, imitated with recorded reeds.

The bank has no free reeds. What a harmonica plays differs from other reeds: neighbouring holes
sound in one breath, so most notes belong to chords or octaves that start together. The player's
hands and throat change the level of all notes at once, and the sound is often amplified.
"""

import numpy as np
from numpy.typing import NDArray

from model.config import SAMPLE_RATE
from training.arrays import F32, Rng
from training.music.notes import Notes, notes_of_rows

BLOW = np.array([0, 4, 7, 12, 16, 19, 24, 28, 31, 36])
DRAW = np.array([2, 7, 11, 14, 17, 21, 23, 26, 29, 33])
"""Semitones of the ten holes of a diatonic harmonica above its lowest note (Richter tuning)."""
KEYS = (55, 66)  # lowest and highest MIDI pitch of the first hole
REEDS = ("oboe", "clarinet", "saxophone")  # classes whose recordings imitate the sound
SINGLE, CHORD, OCTAVE = range(3)


def harmonica_part(melody: Notes, rng: Rng) -> Notes:
    """Return what a harmonica of a random key plays for a melody, whose notes do not overlap. Each
    note moves to the nearest hole. Other holes sound with it, below the melody."""
    if not len(melody):
        return melody
    key = int(rng.integers(KEYS[0], KEYS[1] + 1))
    middle = key + rng.uniform(12, 26)
    octaves = 12 * round((middle - float(np.median(melody.pitch))) / 12)
    styles = rng.dirichlet([0.5, 1, 0.5])  # shares of SINGLE, CHORD and OCTAVE
    style = rng.choice(3, p=styles, size=len(melody))
    reach = rng.integers(1, 4, len(melody))  # further holes of a chord
    rows: list[tuple[float, float, int, float]] = []
    for note in range(len(melody)):
        breath, hole = _nearest_hole(int(melody.pitch[note]) + octaves - key)
        holes = [hole]
        if style[note] == CHORD:
            holes = list(range(max(0, hole - int(reach[note])), hole + 1))
        elif style[note] == OCTAVE and hole >= 3:
            holes = [hole - 3, hole]
        onset, offset = float(melody.onset[note]), float(melody.offset[note])
        for each in holes:
            late_s = 0.0 if each == hole else float(abs(rng.normal(0, 0.008)))
            begin = min(onset + late_s, offset - 0.03)
            velocity = float(np.clip(melody.velocity[note] + rng.normal(0, 5), 12, 122))
            rows.append((begin, offset, key + int(breath[each]), velocity))
    return notes_of_rows(np.array(rows))


def _nearest_hole(semitones: int) -> tuple[NDArray[np.int_], int]:
    """Return BLOW or DRAW and the index of the hole nearest to a pitch above the first hole."""
    breaths = (BLOW, DRAW)
    distance = [np.abs(breath - semitones) for breath in breaths]
    breath = int(np.argmin([each.min() for each in distance]))
    return breaths[breath], int(np.argmin(distance[breath]))


def played_by_hands(audio: F32, rng: Rng) -> F32:
    """Return the audio, [samples], with tremolo of hands or throat, and sometimes the distortion of
    an amplifier."""
    if rng.random() < 0.5:
        time = np.arange(len(audio), dtype=np.float32) / np.float32(SAMPLE_RATE)
        beat = np.sin(2 * np.pi * np.float32(rng.uniform(3, 7)) * time + rng.uniform(0, 6.3))
        slow = np.sin(2 * np.pi * np.float32(rng.uniform(0.1, 0.4)) * time + rng.uniform(0, 6.3))
        depth_db = np.float32(rng.uniform(1, 8)) * np.maximum(0, slow)  # comes and goes
        audio = audio * 10 ** (depth_db * beat / 40).astype(np.float32)
    if rng.random() < 0.3:
        drive = np.float32(rng.uniform(0.5, 4) / max(1e-6, float(np.abs(audio).max(initial=0))))
        audio = np.tanh(drive * audio) / drive
    return audio.astype(np.float32)
