"""Mechanical noises of a piano: keys and dampers falling back, and the pedal."""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import soundfile
from numpy.typing import NDArray

from training.music.notes import Notes

LEVEL_DB = (-55.0, -38.0)
"""Level of a key's noise beside the peak of the music: some 30 to 40 dB below a single note."""
PEDAL_DB = (-6.0, 6.0)
"""Level of the pedal's noise beside a key's."""
SPREAD_DB = 3.0
"""Standard deviation of the level of single noises."""


@dataclass(frozen=True)
class Mechanics:
    """Recorded noises, float32 with a peak of 1 each."""

    keys: NDArray[np.int64]
    """MIDI pitches of ``releases``."""
    releases: list[NDArray[np.float32]]
    """A key and its damper falling back."""
    pedal_down: list[NDArray[np.float32]]
    pedal_up: list[NDArray[np.float32]]


def load_mechanics(folder: Path) -> Mechanics | None:
    """Read ``releases/`` of a bank's folder; None where the bank has none.

    Raises KeyError where a kind of noise ("release", "pedal_down", "pedal_up") is missing.
    """
    index = folder / "releases" / "releases.json"
    if not index.exists():
        return None
    noises: dict[str, list[tuple[int, NDArray[np.float32]]]] = {}
    for entry in json.loads(index.read_text())["sets"].values():
        audio, _ = soundfile.read(folder / entry["file"], dtype="float32")
        for note in entry["notes"]:
            sound = audio[note["start"] : note["start"] + note["length"]]
            peak = np.float32(max(1e-6, float(np.abs(sound).max())))
            noises.setdefault(note["kind"], []).append((note["key"] or 0, sound / peak))
    return Mechanics(
        np.array([key for key, _ in noises["release"]]),
        [sound for _, sound in noises["release"]],
        [sound for _, sound in noises["pedal_down"]],
        [sound for _, sound in noises["pedal_up"]],
    )


def random_noise(
    mechanics: Mechanics,
    notes: Notes,
    pedal: NDArray[np.float64],
    length: int,
    sample_rate: int,
    rng: np.random.Generator,
) -> NDArray[np.float32]:
    """Float32 [length]: the noise of each key at its release and of each press of a pedal [m, 3].

    Its level is drawn from LEVEL_DB, relative to music with a peak of 1. The pedal is louder the
    farther it moves.
    """
    out = np.zeros(length, np.float32)
    keys_db = float(rng.uniform(*LEVEL_DB))
    pedal_db = keys_db + float(rng.uniform(*PEDAL_DB))

    def add(sound: NDArray[np.float32], second: float, level_db: float) -> None:
        at = int(second * sample_rate)
        if 0 <= at < length:
            gain = np.float32(10 ** ((level_db + SPREAD_DB * rng.standard_normal()) / 20))
            sound = sound[: length - at]
            out[at : at + len(sound)] += gain * sound

    nearest = np.abs(notes.pitch[:, None] - mechanics.keys[None, :]).argmin(axis=1)
    for which, second in zip(nearest, notes.released, strict=True):
        add(mechanics.releases[which], float(second), keys_db)
    for begin, end, depth in pedal:
        level_db = pedal_db + 20 * np.log10(max(0.1, depth))
        for sounds, second in ((mechanics.pedal_down, begin), (mechanics.pedal_up, end)):
            add(sounds[rng.integers(len(sounds))], float(second), level_db)
    return out
