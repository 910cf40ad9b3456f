"""Synthesised backgrounds, coloured noise, hum, clicks, bursts, sweeps; excerpts without notes."""

from collections.abc import Mapping
from functools import lru_cache

import numpy as np
from scipy import fft, signal

from training.arrays import F32, Rng
from training.music.synth.surroundings import Backgrounds

TABLE_S = 47.0  # length of the noise tables that excerpts take random slices from
COLOURS = {"white": 0.0, "pink": 0.5, "brown": 1.0}
"""Noise colours: amplitude falls with frequency to this power."""

CLICKS_PER_S, BURSTS_PER_S = 1.0, 2.5


@lru_cache(maxsize=8)
def _table(colour: str, sample_rate: int) -> F32:
    """Unit-variance noise, equal in every process; generating it each time would be slow."""
    size = fft.next_fast_len(int(TABLE_S * sample_rate))
    rng = np.random.default_rng(sorted(COLOURS).index(colour))
    spectrum = fft.rfft(rng.standard_normal(size))
    frequency = np.maximum(np.arange(len(spectrum)) * sample_rate / size, 15.0)
    noise = fft.irfft(spectrum * frequency ** -COLOURS[colour], size)
    noise -= noise.mean()
    return np.asarray(noise / noise.std(), np.float32)


def coloured(length: int, colour: str, sample_rate: int, rng: Rng) -> F32:
    """Unit-variance noise of a colour, float32 [length]."""
    table = _table(colour, sample_rate)
    begin = int(rng.integers(len(table)))
    return np.take(table, np.arange(begin, begin + length), mode="wrap")


def hum(length: int, sample_rate: int, rng: Rng) -> F32:
    """Mains hum: 50 or 60 Hz and harmonics, near unit variance."""
    time = np.arange(length, dtype=np.float32) / np.float32(sample_rate)
    base = float(rng.choice([50.0, 60.0])) + rng.normal(0, 0.05)
    out = np.zeros(length, np.float32)
    for harmonic in range(1, 6):
        level = rng.uniform(0, 1) / harmonic
        out += np.float32(level) * np.sin(
            np.float32(2 * np.pi * base * harmonic) * time + np.float32(rng.uniform(0, 6.28))
        )
    return out


def clicks(length: int, sample_rate: int, rng: Rng) -> F32:
    """Single loud samples and short bursts, as of switches, keys and bad contacts."""
    out = np.zeros(length, np.float32)
    count = rng.poisson(CLICKS_PER_S * length / sample_rate)
    for at in rng.integers(0, length, count):
        size = min(int(rng.integers(1, 40)), length - int(at))
        burst = rng.standard_normal(size) * np.exp(-np.arange(size) / rng.uniform(1, 12))
        out[at : at + size] += (burst * rng.lognormal(0, 0.7)).astype(np.float32)
    return out


def bursts(length: int, sample_rate: int, rng: Rng) -> F32:
    """Drum-like decaying noise, band-limited at random."""
    out = np.zeros(length, np.float32)
    edge = np.exp(rng.uniform(np.log(150), np.log(0.4 * sample_rate), 2))
    high = float(edge.max())  # below the Nyquist frequency
    low = min(float(edge.min()), high / 1.5)
    band = signal.butter(1, [low, high], "bandpass", fs=sample_rate, output="sos")
    for at in rng.integers(0, length, rng.poisson(BURSTS_PER_S * length / sample_rate)):
        size = min(int(rng.uniform(0.03, 0.5) * sample_rate), length - int(at))
        shape = np.exp(-np.arange(size) / (sample_rate * rng.uniform(0.005, 0.12)))
        out[at : at + size] += (rng.standard_normal(size) * shape).astype(np.float32)
    return np.asarray(signal.sosfilt(band, out), np.float32)


def sweep(length: int, sample_rate: int, rng: Rng) -> F32:
    """Sines that glide up and down, as in sirens and test signals; peak 1."""
    octaves = rng.uniform(0.15, 1.5)  # per second, faster than any pitch bend
    turns = np.arange(length) / sample_rate * octaves / 6
    height = 6 * np.abs(2 * ((turns + rng.random()) % 1) - 1)  # octaves above 60 Hz, up and down
    return np.sin(2 * np.pi * np.cumsum(60 * 2**height / sample_rate)).astype(np.float32)


def background(
    length: int,
    sample_rate: int,
    kinds: Mapping[str, float],
    rng: Rng,
    sounds: Backgrounds,
    recorded: float = 1.0,
) -> F32:
    """A whole excerpt without notes, peak 1 or digital silence; float32 [length]. kinds: relative
    frequencies (``SynthConfig.background_kinds``); recorded: the share of noise that comes from
    ``sounds``, if there is any; all speech does."""
    shares = np.array(list(kinds.values()))
    kind = str(rng.choice(list(kinds), p=shares / shares.sum()))
    out = np.zeros(length, np.float32)
    if kind in ("noise", "mixture"):
        from_life = bool(sounds.kinds) and rng.random() < recorded
        if from_life:
            out += sounds.noise(length, rng)
        if not from_life or kind == "mixture":
            colour = str(rng.choice(list(COLOURS)))
            out += np.float32(rng.uniform(0.02, 1)) * coloured(length, colour, sample_rate, rng)
    if kind in ("hum", "mixture"):
        out += np.float32(rng.uniform(0.2, 1)) * hum(length, sample_rate, rng)
    if kind in ("percussion", "mixture"):
        out += percussion(length, sample_rate, rng, sounds)
    if kind == "percussion":
        out += np.float32(0.3) * clicks(length, sample_rate, rng)
    if kind == "sweep":
        out += sweep(length, sample_rate, rng)
    if kind in ("talk", "conversation"):
        for _ in range(1 if kind == "talk" else rng.integers(2, 5)):
            out += np.float32(rng.uniform(0.3, 1)) * sounds.talk(length, rng)
    peak = float(np.abs(out).max(initial=0))
    return out / np.float32(peak) if peak > 0 else out


def percussion(length: int, sample_rate: int, rng: Rng, sounds: Backgrounds) -> F32:
    """A recorded kit that plays a beat, if there is any, or bursts of noise."""
    return sounds.drums(length, rng) if sounds.kits else bursts(length, sample_rate, rng)
