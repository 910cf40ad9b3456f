"""Loads and synthesises sounds without notes: ambience, speech, drums, noise and hum."""

from collections.abc import Sequence
from functools import cache, lru_cache
from pathlib import Path, PurePosixPath

import numpy as np
from scipy import fft

from model.config import SAMPLE_RATE
from training.arrays import F32, Rng, draw
from training.music.recordings import Pcm, from_pcm, read_audio, to_pcm
from training.music.synth.bank import read_index

HELD_OUT = ("5703-47212-0000", "theo", "yweweler", "percussion_avl")
"""Speakers (by part of a segment's name) and drums (by file) that are used only for validation."""
CONTINUOUS = ("traffic", "ambience", "rain", "machine", "water", "crowd", "hiss", "footsteps")
"""Kinds of continuous sounds. All other kinds are short events."""
RECORDED = 0.7  # fraction of noises that are recorded, if there are recordings
_ROLES = (((35, 36), 0.3), ((37, 38, 39, 40), 0.2), ((42, 44, 46), 0.7), ((), 0.08))
"""General MIDI keys of bass drum, snare drum, hi-hat and all others, and for each the fraction of
steps at which it plays."""


class Backgrounds:
    """The recorded sounds of one split."""

    def __init__(self) -> None:
        self.voices: dict[str, list[Pcm]] = {}  # by speaker
        self.kits: dict[str, list[tuple[int, Pcm]]] = {}
        """General MIDI key and sound of each hit, by file."""
        self.kinds: dict[str, list[Pcm]] = {}  # other sounds, by kind

    def noise(self, length: int, rng: Rng) -> F32:
        """Return a continuous sound, short events, or both, float32 [length]."""
        steady = [kind for kind in self.kinds if kind in CONTINUOUS]
        sudden = [kind for kind in self.kinds if kind not in CONTINUOUS]
        out = np.zeros(length, np.float32)
        draw = rng.random()  # 0 to 0.5: only continuous, 0.5 to 0.75: both
        if steady and (draw < 0.75 or not sudden):
            out += _steady(self.kinds[steady[rng.integers(len(steady))]], length, rng)
        if sudden and (draw > 0.5 or not steady):
            events = self.kinds[sudden[rng.integers(len(sudden))]]
            per_second = float(np.exp(rng.uniform(np.log(0.1), np.log(1.5))))
            for at in rng.integers(0, length, rng.poisson(per_second * length / SAMPLE_RATE)):
                level = np.float32(rng.lognormal(0, 0.6))
                _add(out, int(at), level * from_pcm(events[rng.integers(len(events))]))
        return out

    def talk(self, length: int, rng: Rng) -> F32:
        """Return speech of one speaker with pauses, float32 [length]; silence without speakers."""
        out = np.zeros(length, np.float32)
        if not self.voices:
            return out
        # A speaker's probability is proportional to the length of the speaker's recordings.
        voices = list(self.voices.values())
        voice = draw(voices, [sum(map(len, sounds)) for sounds in voices], rng)
        pace = float(rng.uniform(0.85, 1.2))  # playback speed, which also changes pitch and timbre
        at = -int(rng.uniform(0, 0.5) * len(voice[0]))
        while at < length:
            sound = from_pcm(voice[rng.integers(len(voice))])
            positions = np.arange(0, len(sound) - 1, pace)
            sound = np.interp(positions, np.arange(len(sound)), sound).astype(np.float32)
            _add(out, at, sound)
            at += len(sound) + int(rng.exponential(0.35) * SAMPLE_RATE)
        return out

    def drums(self, length: int, rng: Rng) -> F32:
        """Return a drum pattern on one kit, float32 [length]; silence without kits."""
        out = np.zeros(length, np.float32)
        if not self.kits:
            return out
        kit = self.kits[list(self.kits)[rng.integers(len(self.kits))]]
        special_keys = {key for keys, _ in _ROLES for key in keys}
        parts = []
        for keys, share in _ROLES:
            hits = [hit for hit in kit if (hit[0] in keys if keys else hit[0] not in special_keys)]
            if hits:
                chosen_key, _ = hits[rng.integers(len(hits))]
                layers = [from_pcm(hit) for key, hit in hits if key == chosen_key]
                parts.append((layers, rng.random(16) < share))
        step = int(SAMPLE_RATE * rng.uniform(0.1, 0.28))  # samples from one step to the next
        for number, begin in enumerate(range(int(rng.integers(step)), length, step)):
            for layers, pattern in parts:
                if pattern[number % 16] and rng.random() < 0.95:
                    late = int(rng.integers(max(1, step // 20)))
                    level = np.float32(rng.uniform(0.3, 1))
                    _add(out, begin + late, level * layers[rng.integers(len(layers))])
        return out


def load_backgrounds(folder: Path, held_out: bool = False) -> Backgrounds:
    """Load the sounds of ``noise.json``, or none if the file is missing. Raises ValueError if the
    rate is not SAMPLE_RATE. held_out: load only HELD_OUT. By default, load all others."""
    backgrounds = Backgrounds()
    if not (folder / "noise.json").exists():
        return backgrounds
    read = cache(lambda name: read_audio(folder / name)[0])
    for entry in read_index(folder / "noise.json")["segments"]:
        file, words = PurePosixPath(entry["file"]).stem, entry["name"].split("_")
        if held_out != any(word in words or word == file for word in HELD_OUT):
            continue
        raw = read(entry["file"])[entry["start"] : entry["start"] + entry["length"]]
        sound = to_pcm(raw)
        kind = entry["kind"]
        if kind == "drum_hit":
            backgrounds.kits.setdefault(file, []).append((int(entry.get("gm_key") or 0), sound))
        elif entry["speech"] and kind != "crowd":
            speaker = words[1] if kind == "speech_digits" else entry["name"]
            backgrounds.voices.setdefault(speaker, []).append(sound)
        else:
            backgrounds.kinds.setdefault(kind, []).append(sound)
    return backgrounds


def _steady(kind: Sequence[Pcm], length: int, rng: Rng) -> F32:
    """Return random segments of one kind, crossfaded and equally loud, float32 [length]."""
    out, at = np.zeros(length, np.float32), 0
    while at < length:
        sound = from_pcm(kind[int(rng.integers(len(kind)))])
        sound = sound[int(rng.uniform(0, 0.3) * len(sound)) :]
        sound /= np.float32(max(1e-4, float(np.std(sound))) * 6)
        fade = min(len(sound) // 2, int(0.15 * SAMPLE_RATE))
        ramp = np.linspace(0, 1, fade, dtype=np.float32)
        sound[:fade] *= ramp
        sound[len(sound) - fade :] *= ramp[::-1]
        _add(out, at, sound)
        at += max(1, len(sound) - fade)
    return out


def _add(out: F32, at: int, sound: F32) -> None:
    """Add ``sound`` to ``out`` from sample ``at``, which may be negative. Omit samples outside."""
    sound = sound[max(0, -at) : max(0, len(out) - at)]
    at = max(0, at)
    out[at : at + len(sound)] += sound


COLOURS = {"white": 0.0, "pink": 0.5, "brown": 1.0}
"""Exponent with which the amplitude falls with frequency, by colour."""


@lru_cache(maxsize=len(COLOURS))
def _table(colour: str) -> F32:
    """Return about 47 s of unit-variance noise, equal in every process. Generating it is slow."""
    size = fft.next_fast_len(47 * SAMPLE_RATE)
    rng = np.random.default_rng(sorted(COLOURS).index(colour))
    spectrum = fft.rfft(rng.standard_normal(size))
    frequency = np.maximum(np.arange(len(spectrum)) * SAMPLE_RATE / size, 15.0)
    noise = fft.irfft(spectrum * frequency ** -COLOURS[colour], size)
    noise -= noise.mean()
    return np.asarray(noise / noise.std(), np.float32)


def coloured(length: int, colour: str, rng: Rng) -> F32:
    """Return unit-variance noise of one of COLOURS, float32 [length]."""
    table = _table(colour)
    begin = int(rng.integers(len(table)))
    return np.take(table, np.arange(begin, begin + length), mode="wrap")


def hum(length: int, rng: Rng) -> F32:
    """Return mains hum, float32 [length]: 50 or 60 Hz with overtones of random level."""
    time = np.arange(length, dtype=np.float32) / np.float32(SAMPLE_RATE)
    base = float(rng.choice([50.0, 60.0])) + rng.normal(0, 0.05)
    out = np.zeros(length, np.float32)
    for harmonic in range(1, 6):
        level = np.float32(rng.uniform(0, 1) / harmonic)
        turn, phase = np.float32(2 * np.pi * base * harmonic), np.float32(rng.uniform(0, 6.28))
        out += level * np.sin(turn * time + phase)
    return out


def clicks(length: int, rng: Rng) -> F32:
    """Return clicks and short bursts, as from switches, keys and bad contacts, float32 [length]."""
    out = np.zeros(length, np.float32)
    for at in rng.integers(0, length, rng.poisson(length / SAMPLE_RATE)):
        size = min(int(rng.integers(1, 40)), length - int(at))
        burst = rng.standard_normal(size) * np.exp(-np.arange(size) / rng.uniform(1, 12))
        out[at : at + size] += (burst * rng.lognormal(0, 0.7)).astype(np.float32)
    return out


def sweep(length: int, rng: Rng) -> F32:
    """Return a sine that glides like a siren or a test signal, with a peak of 1, float32 [length].
    It covers six octaves, up and down, at 0.3 to 3 octaves per second."""
    speed = rng.uniform(0.15, 1.5)  # half the number of octaves per second
    cycles = np.arange(length) / SAMPLE_RATE * speed / 6
    octaves = 6 * np.abs(2 * ((cycles + rng.random()) % 1) - 1)  # above 60 Hz
    return np.sin(2 * np.pi * np.cumsum(60 * 2**octaves / SAMPLE_RATE)).astype(np.float32)


KINDS = {
    "silence": 0.05,
    "noise": 0.20,
    "hum": 0.06,
    "percussion": 0.18,
    "mixture": 0.10,
    "sweep": 0.03,
    "talk": 0.24,
    "conversation": 0.08,
}
"""Relative frequency of each kind of background."""


def random_background(
    length: int, rng: Rng, sounds: Backgrounds, recorded: float = RECORDED, kind: str = ""
) -> F32:
    """Return a background without notes, float32 [length], which has a peak of 1 or is silent.

    Args:
        recorded: probability that noise is recorded, if ``sounds`` has noises.
        kind: one of KINDS; empty means a random kind.
    """
    kind = kind or draw(list(KINDS), list(KINDS.values()), rng)
    out = np.zeros(length, np.float32)
    if kind in ("noise", "mixture"):
        use_recorded = bool(sounds.kinds) and rng.random() < recorded
        if use_recorded:
            out += sounds.noise(length, rng)
        if not use_recorded or kind == "mixture":
            colour = str(rng.choice(list(COLOURS)))
            out += np.float32(rng.uniform(0.02, 1)) * coloured(length, colour, rng)
    if kind in ("hum", "mixture"):
        out += np.float32(rng.uniform(0.2, 1)) * hum(length, rng)
    if kind in ("percussion", "mixture"):
        out += sounds.drums(length, rng)
    if kind == "percussion":
        out += np.float32(0.3) * clicks(length, rng)
    if kind == "sweep":
        out += sweep(length, rng)
    if kind in ("talk", "conversation"):
        for _ in range(1 if kind == "talk" else rng.integers(2, 5)):
            out += np.float32(rng.uniform(0.3, 1)) * sounds.talk(length, rng)
    peak = float(np.abs(out).max(initial=0))
    return out / np.float32(peak) if peak > 0 else out
