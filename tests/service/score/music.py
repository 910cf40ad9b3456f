"""Synthetic performances for tests, as arrays [notes, 4] of onset and end in s, pitch, velocity."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from service.notes.events import Note

SCALE = (60, 62, 64, 65, 67, 69, 71, 72)


def tune(
    beats_s: Sequence[float] | NDArray[Any], beats_per_bar: int, seed: int = 0
) -> NDArray[np.float64]:
    """Return a melody in C with one or two notes per beat, and a bass and a chord in each bar."""
    rng = np.random.default_rng(seed)
    rows = []
    for beat, (start_s, end_s) in enumerate(zip(beats_s, beats_s[1:], strict=False)):
        half_s = (start_s + end_s) / 2
        pitch = SCALE[rng.integers(len(SCALE))]
        if rng.random() < 0.5:
            rows.append((start_s, end_s, pitch, 70))
        else:
            rows += [(start_s, half_s, pitch, 70), (half_s, end_s, pitch + 2, 60)]
        if beat % beats_per_bar == 0:
            bar_s = beats_s[min(beat + beats_per_bar, len(beats_s) - 1)]
            root = (36, 41, 43)[beat // beats_per_bar % 3]
            rows += [(start_s, bar_s, root, 80), (start_s, bar_s, root + 16, 60)]
        elif beats_per_bar == 3:
            rows.append((start_s, end_s, 55, 50))
    notes = np.array(rows, float)
    notes[:, 0] += rng.normal(0, 0.008, len(notes))
    return notes[np.lexsort((notes[:, 2], notes[:, 0]))]


def free_rhythm(waits_s: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return random pitches and velocities, whose onsets are ``waits_s`` apart."""
    rng, onset_s = np.random.default_rng(len(waits_s)), np.cumsum(waits_s)
    pitch, velocity = rng.integers(40, [[80], [100]], (2, len(waits_s)))
    return np.stack([onset_s, onset_s + 0.4, pitch, velocity], 1)


def as_notes(array: NDArray[np.float64], instrument: str | None = None) -> list[Note]:
    return [
        Note(note_id, int(pitch), int(velocity), 0.9, 0, 1, float(on), float(off), instrument)
        for note_id, (on, off, pitch, velocity) in enumerate(array)
    ]
