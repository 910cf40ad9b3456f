"""Measured rooms and recorded backgrounds."""

from dataclasses import dataclass
from pathlib import Path

from training.music.synth.acoustics.backgrounds import Backgrounds, load_backgrounds
from training.music.synth.acoustics.rooms import Room, load_rooms


@dataclass(frozen=True)
class Surroundings:
    """Measured rooms and recorded backgrounds; without them all are synthesised."""

    rooms: tuple[Room, ...] = ()
    sounds: Backgrounds | None = None


NOWHERE = Surroundings()


def load_surroundings(folder: Path, cache: Path, sample_rate: int) -> Surroundings:
    """Those found in ``folder``. Raises ValueError if their rate differs."""
    sounds = load_backgrounds(folder, cache, sample_rate)
    return Surroundings(load_rooms(folder, sample_rate), sounds)
