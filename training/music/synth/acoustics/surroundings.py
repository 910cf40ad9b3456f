"""What was measured and recorded of the world around an instrument: rooms and their sounds."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from training.music.synth.acoustics.backgrounds import Backgrounds, load_backgrounds
from training.music.synth.acoustics.rooms import Room, load_rooms


@dataclass(frozen=True)
class Surroundings:
    """Measured rooms and recorded backgrounds; without them everything is made up."""

    rooms: tuple[Room, ...] = ()
    sounds: Backgrounds | None = None


NOWHERE = Surroundings()


def load_surroundings(folder: Path, cache: Path, sample_rate: int) -> Surroundings:
    """What of them lies in ``folder``. Raises ValueError where it is at another rate."""
    sounds = load_backgrounds(folder, cache, sample_rate)
    return Surroundings(load_rooms(folder, sample_rate), sounds)
