"""Measured rooms: the reflections that a microphone records after the direct sound."""

import json
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import soundfile
from numpy.typing import NDArray

DIRECT_S = 0.0025
"""Part of a measured response that counts as direct sound and becomes an impulse."""
LONGEST_S = 2.5
"""Responses are truncated here; those of caves and cathedrals last longer."""
FADE_S = 0.25
RATIO_DB = (-6.0, 14.0)
"""Direct sound over reflections: from twice the critical distance to a fifth of it (the distance at
which both are equal; H. Kuttruff, Room Acoustics, section 5.5)."""
SHORTEST_DECAY = 0.5
"""Decays are shortened to as little as this fraction, as by curtains and an audience."""
PREDELAY_S = 0.02
"""Largest additional delay of reflections, as from more distant walls."""
MICROPHONES = 0.3
"""Share of the recordings mixed from two microphones."""
SPACING_S = 0.002
"""The second microphone hears the instrument this much later, at most."""
_SELDOM = {"plate": 0.4, "mausoleum": 0.1, "tunnel": 0.5}


@dataclass(frozen=True)
class Room:
    """Reflections of one place at one microphone, float32 [samples] from the direct sound on."""

    place: str
    kind: str
    t60_s: float
    reflections: NDArray[np.float32]


@lru_cache(maxsize=4)
def load_rooms(folder: Path, sample_rate: int) -> tuple[Room, ...]:
    """The rooms of ``rooms.json``, none if it is missing; insides of pianos are left out.

    Raises ValueError if their rate differs.
    """
    path = folder / "rooms.json"
    if not path.exists():
        return ()
    index = json.loads(path.read_text())
    if index["sample_rate"] != sample_rate:
        raise ValueError(f"{path} is at {index['sample_rate']} Hz, the bank at {sample_rate} Hz")
    rooms = []
    for entry in index["rooms"]:
        if entry["kind"] == "piano body":
            continue
        response, _ = soundfile.read(folder / entry["file"], dtype="float32")
        reflections = response[entry["direct_sample"] :][: int(LONGEST_S * sample_rate)].copy()
        reflections[: int(DIRECT_S * sample_rate)] = 0
        fade = min(len(reflections), int(FADE_S * sample_rate))
        reflections[-fade:] *= np.linspace(1, 0, fade, dtype=np.float32)
        place = entry["name"].split("_")[0]
        rooms.append(Room(place, entry["kind"], float(entry["t60_s"]), reflections))
    return tuple(rooms)


def measured_response(
    rooms: tuple[Room, ...], sample_rate: int, rng: np.random.Generator
) -> NDArray[np.float64]:
    """An impulse response with the direct sound, 1, at sample 0, from one of ``rooms``.

    Distance, delay and length of the reflections are random; sometimes a second microphone in
    the same place is mixed in.
    """
    weights = np.array([_SELDOM.get(room.kind, 1.0) for room in rooms])
    room = rooms[int(rng.choice(len(rooms), p=weights / weights.sum()))]
    response = _response(room, sample_rate, rng)
    if rng.random() < MICROPHONES:
        others = [other for other in rooms if other.place == room.place]
        second = _response(others[rng.integers(len(others))], sample_rate, rng)
        late = int(rng.integers(int(SPACING_S * sample_rate) + 1))
        both = np.zeros(max(len(response), len(second) + late))
        both[: len(response)] = response
        both[late : late + len(second)] += rng.uniform(0.3, 1.0) * second
        response = both / both[0]
    return response


def _response(room: Room, sample_rate: int, rng: np.random.Generator) -> NDArray[np.float64]:
    time = np.arange(len(room.reflections)) / sample_rate
    shorter = 1 / rng.uniform(SHORTEST_DECAY, 1.0) - 1  # added to the rate of decay, in T60s
    reflections = room.reflections * np.exp(-6.91 * shorter / room.t60_s * time)
    level = 10 ** (-rng.uniform(*RATIO_DB) / 20) / max(1e-9, float(np.linalg.norm(reflections)))
    late = int(rng.uniform(0, PREDELAY_S) * sample_rate) if rng.random() < 0.5 else 0
    response = np.concatenate([np.zeros(late), level * reflections])
    response[0] = 1.0
    return response
