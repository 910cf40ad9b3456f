"""Measured rooms, and recorded sounds without notes: rooms and streets, speech, drum hits."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import soundfile
from numpy.typing import NDArray

from training.arrays import F32, F64, Rng

DIRECT_S = 0.0025  # part of a measured response that counts as direct sound and becomes an impulse
LONGEST_S = 2.5  # responses are truncated here; those of caves and cathedrals last longer
FADE_S = 0.25
RATIO_DB = (-6.0, 14.0)
"""Direct sound over reflections: from twice the critical distance to a fifth of it (the distance at
which both are equal; H. Kuttruff, Room Acoustics, section 5.5)."""
SHORTEST_DECAY = 0.5
"""Decays are shortened to as little as this fraction, as by curtains and an audience."""
PREDELAY_S = 0.02  # largest additional delay of reflections, as from more distant walls
MICROPHONES = 0.3  # share of the recordings mixed from two microphones
SPACING_S = 0.002  # the second microphone hears the instrument this much later, at most
_SELDOM = {"plate": 0.4, "mausoleum": 0.1, "tunnel": 0.5}


@dataclass(frozen=True)
class Room:
    """Reflections of one place at one microphone, float32 [samples] from the direct sound on."""

    place: str
    kind: str
    t60_s: float
    reflections: F32


def _index(path: Path, sample_rate: int) -> dict[str, Any]:
    """Empty if it is missing. Raises ValueError if its rate differs."""
    index: dict[str, Any] = json.loads(path.read_bytes()) if path.exists() else {}
    if index and index["sample_rate"] != sample_rate:
        raise ValueError(f"{path} is at {index['sample_rate']} Hz, the bank at {sample_rate} Hz")
    return index


@lru_cache(maxsize=4)
def load_rooms(folder: Path, sample_rate: int) -> tuple[Room, ...]:
    """The rooms of ``rooms.json``, none if it is missing; insides of pianos are left out. Raises
    ValueError if their rate differs."""
    index = _index(folder / "rooms.json", sample_rate)
    rooms = []
    for entry in index.get("rooms", ()):
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


def measured_response(rooms: tuple[Room, ...], sample_rate: int, rng: Rng) -> F64:
    """An impulse response with the direct sound, 1, at sample 0, from one of ``rooms``. Distance,
    delay and length of the reflections are random; sometimes a second microphone in the same place
    is mixed in."""
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


def _response(room: Room, sample_rate: int, rng: Rng) -> F64:
    time = np.arange(len(room.reflections)) / sample_rate
    shorter = 1 / rng.uniform(SHORTEST_DECAY, 1.0) - 1  # added to the rate of decay, in T60s
    reflections = room.reflections * np.exp(-6.91 * shorter / room.t60_s * time)
    level = 10 ** (-rng.uniform(*RATIO_DB) / 20) / max(1e-9, float(np.linalg.norm(reflections)))
    late = int(rng.uniform(0, PREDELAY_S) * sample_rate) if rng.random() < 0.5 else 0
    response = np.concatenate([np.zeros(late), level * reflections])
    response[0] = 1.0
    return response


HELD_OUT = ("5703-47212-0000", "theo", "yweweler", "percussion_avl")
"""Voices (parts of a segment's name) and drums (its file) held out for evaluation."""
CONTINUOUS = ("traffic", "ambience", "rain", "machine", "water", "crowd", "hiss", "footsteps")
"""Kinds of continuous sounds; others are occasional events."""
CROSSFADE_S = 0.15
EVENTS_PER_S = (0.1, 1.5)
PACE = (0.85, 1.2)  # speeds at which voices are played, which changes pitch and timbre
PAUSE_S = 0.35  # mean pause between two segments of speech
STEPS = 16  # of a beat's pattern
_ROLES = (((35, 36), 0.3), ((37, 38, 39, 40), 0.2), ((42, 44, 46), 0.7), ((), 0.08))
"""General MIDI keys of bass drum, snare drum, hi-hat and (all others), and how often each plays."""


@dataclass(frozen=True)
class Segment:
    """A recorded sound."""

    kind: str
    name: str
    file: str
    speech: bool
    key: int  # General MIDI key of a drum hit; 0 for other sounds
    samples: NDArray[np.int16]

    @property
    def held_out(self) -> bool:
        return any(word in self.name.split("_") or word == self.file for word in HELD_OUT)

    @property
    def speaker(self) -> str:
        return self.name.split("_")[1] if self.kind == "speech_digits" else self.name


class Backgrounds:
    """The sounds of one split."""

    def __init__(self, segments: Sequence[Segment], sample_rate: int) -> None:
        self.segments, self.sample_rate = segments, sample_rate
        self.voices: dict[str, list[Segment]] = {}
        self.kits: dict[str, list[Segment]] = {}
        self.kinds: dict[str, list[Segment]] = {}
        for one in segments:
            if one.kind == "drum_hit":
                self.kits.setdefault(one.file, []).append(one)
            elif one.speech and one.kind != "crowd":
                self.voices.setdefault(one.speaker, []).append(one)
            else:
                self.kinds.setdefault(one.kind, []).append(one)

    def sound(self, segment: Segment) -> F32:
        """The samples of a segment, peak near 0.9."""
        return segment.samples.astype(np.float32) / np.float32(np.iinfo(np.int16).max)

    def noise(self, length: int, rng: Rng) -> F32:
        """Sounds of a place: steady ones, events, or both; float32 [length]."""
        steady = [kind for kind in self.kinds if kind in CONTINUOUS]
        sudden = [kind for kind in self.kinds if kind not in CONTINUOUS]
        out = np.zeros(length, np.float32)
        both = rng.random()
        if steady and (both < 0.75 or not sudden):
            out += self._steady(self.kinds[steady[rng.integers(len(steady))]], length, rng)
        if sudden and (both > 0.5 or not steady):
            events = self.kinds[sudden[rng.integers(len(sudden))]]
            per_second = float(np.exp(rng.uniform(*np.log(EVENTS_PER_S))))
            for at in rng.integers(0, length, rng.poisson(per_second * length / self.sample_rate)):
                level = np.float32(rng.lognormal(0, 0.6))
                _add(out, int(at), level * self.sound(events[rng.integers(len(events))]))
        return out

    def _steady(self, kind: Sequence[Segment], length: int, rng: Rng) -> F32:
        """Segments of a kind, crossfaded, at equal loudness."""
        out, at = np.zeros(length, np.float32), 0
        while at < length:
            sound = self.sound(kind[int(rng.integers(len(kind)))])
            sound = sound[int(rng.uniform(0, 0.3) * len(sound)) :]
            sound /= np.float32(max(1e-4, float(np.std(sound))) * 6)
            fade = min(len(sound) // 2, int(CROSSFADE_S * self.sample_rate))
            ramp = np.linspace(0, 1, fade, dtype=np.float32)
            sound[:fade] *= ramp
            sound[len(sound) - fade :] *= ramp[::-1]
            _add(out, at, sound)
            at += max(1, len(sound) - fade)
        return out

    def talk(self, length: int, rng: Rng) -> F32:
        """One speaker, with pauses; float32 [length], silent without speech."""
        out = np.zeros(length, np.float32)
        if not self.voices:
            return out
        # Half of the time long recordings of speech, else single words.
        names = list(self.voices)
        seconds = [sum(len(one.samples) for one in self.voices[name]) for name in names]
        voice = self.voices[names[int(rng.choice(len(names), p=np.divide(seconds, sum(seconds))))]]
        pace = float(rng.uniform(*PACE))
        at = -int(rng.uniform(0, 0.5) * len(voice[0].samples))
        while at < length:
            sound = self.sound(voice[rng.integers(len(voice))])
            places = np.arange(0, len(sound) - 1, pace)
            sound = np.interp(places, np.arange(len(sound)), sound).astype(np.float32)
            _add(out, at, sound)
            at += len(sound) + int(rng.exponential(PAUSE_S) * self.sample_rate)
        return out

    def drums(self, length: int, rng: Rng) -> F32:
        """One of the kits plays a beat; float32 [length]."""
        kit = self.kits[list(self.kits)[rng.integers(len(self.kits))]]
        named = {key for keys, _ in _ROLES for key in keys}
        parts = []
        for keys, share in _ROLES:
            hits = [hit for hit in kit if (hit.key in keys if keys else hit.key not in named)]
            if hits:
                one = hits[rng.integers(len(hits))]
                layers = [self.sound(hit) for hit in hits if hit.key == one.key]
                parts.append((layers, rng.random(STEPS) < share))
        step = int(self.sample_rate * rng.uniform(0.1, 0.28))  # between two places of the pattern
        out = np.zeros(length, np.float32)
        for place, begin in enumerate(range(int(rng.integers(step)), length, step)):
            for layers, pattern in parts:
                if pattern[place % STEPS] and rng.random() < 0.95:
                    late = int(rng.integers(max(1, step // 20)))
                    level = np.float32(rng.uniform(0.3, 1))
                    _add(out, begin + late, level * layers[rng.integers(len(layers))])
        return out


def load_backgrounds(folder: Path, sample_rate: int, held_out: bool = False) -> Backgrounds:
    """The sounds of ``noise.json``; none if it is missing. held_out: the voices and drums kept out
    of training, instead of everything else. Raises ValueError if their rate differs."""
    chosen: list[Segment] = []
    index = _index(folder / "noise.json", sample_rate)
    read = cache(lambda name: soundfile.read(folder / name, dtype="float32")[0])
    for entry in index.get("segments", ()):
        raw = read(entry["file"])[entry["start"] : entry["start"] + entry["length"]]
        segment = Segment(
            kind=entry["kind"],
            name=entry["name"],
            file=PurePosixPath(entry["file"]).stem,
            speech=entry["speech"],
            key=int(entry.get("gm_key") or 0),
            samples=np.rint(np.clip(raw, -1, 1) * np.iinfo(np.int16).max).astype(np.int16),
        )
        if segment.held_out == held_out:
            chosen.append(segment)
    return Backgrounds(chosen, sample_rate)


def _add(out: F32, at: int, sound: F32) -> None:
    """Adds ``sound`` at sample ``at``, which may be negative; parts outside are dropped."""
    skip = max(0, -at)
    n = min(len(sound), len(out) - at)
    if n > skip:
        out[at + skip : at + n] += sound[skip:n]
