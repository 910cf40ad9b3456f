"""Sounds without notes, for measuring false notes.

They are synthesised differently from the training backgrounds (``synth.acoustics``), so models have
not trained on similar sounds: noise is filtered instead of shaped in its spectrum. Recorded speech
and drums are in ``training.evaluation.junk.held_out_sounds``.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy import signal

Sound = NDArray[np.float32]

RATE_HZ = 44_100
NOISE_DB = -26.0  # RMS in dBFS, as from a microphone with too much gain
ROOM_DB = -50.0  # a quiet room at the gain for music


def _level(sound: NDArray[np.floating], rms_db: float) -> Sound:
    rms = float(np.sqrt(np.mean(np.square(sound))))
    return np.asarray(sound * (10 ** (rms_db / 20) / max(rms, 1e-9)), np.float32)


def silence(length: int, rng: np.random.Generator) -> Sound:
    return np.zeros(length, np.float32)


def white(length: int, rng: np.random.Generator) -> Sound:
    return _level(rng.standard_normal(length), NOISE_DB)


def pink(length: int, rng: np.random.Generator) -> Sound:
    """Noise that falls by 3 dB an octave, by first-order sections an octave apart."""
    noise = rng.standard_normal(length)
    corners_hz = 20.0 * 4.0 ** np.arange(6)  # a pole, and a zero an octave above it
    poles = np.exp(-2 * np.pi * corners_hz / RATE_HZ)
    zeros = np.exp(-2 * np.pi * np.minimum(2 * corners_hz, 0.49 * RATE_HZ) / RATE_HZ)
    for pole, zero in zip(poles, zeros, strict=True):
        noise = signal.lfilter([1, -zero], [1, -pole], noise)
    return _level(noise, NOISE_DB)


def room(length: int, rng: np.random.Generator) -> Sound:
    """An empty room: slowly varying rumble and hiss, and faint mains hum."""
    rumble = signal.sosfilt(
        signal.butter(2, 200, fs=RATE_HZ, output="sos"), rng.standard_normal(length)
    )
    hiss = pink(length, rng)
    slow = signal.sosfilt(
        signal.butter(2, 0.3, fs=RATE_HZ, output="sos"), rng.standard_normal(length)
    )
    breath = 1 + 0.3 * slow / max(1e-9, np.abs(slow).max())
    time = np.arange(length) / RATE_HZ
    hum = np.sum([np.sin(2 * np.pi * 50 * k * time + k) / k**2 for k in (1, 2, 3, 4, 6)], axis=0)
    mixed = (_level(rumble, 0.0) + 0.5 * _level(hiss, 0.0)) * breath + 0.1 * _level(hum, 0.0)
    return _level(mixed, ROOM_DB)


def sine_sweep(length: int, rng: np.random.Generator) -> Sound:
    """A sine from 30 Hz to 8 kHz in 20 s, repeated."""
    time = np.arange(length) / RATE_HZ % 20.0
    low, octaves = 30.0, np.log2(8000 / 30)
    phase = low * 20 / (octaves * np.log(2)) * 2 ** (octaves * time / 20)
    return (0.25 * np.sin(2 * np.pi * phase)).astype(np.float32)


SOUNDS: dict[str, Callable[[int, np.random.Generator], Sound]] = {
    "digital silence": silence,
    "room noise": room,
    "white noise": white,
    "pink noise": pink,
    "sine sweep": sine_sweep,
}
"""Makers of ``length`` samples at RATE_HZ, full scale 1."""
NOISES = ("digital silence", "room noise", "white noise", "pink noise")
"""Sounds with a limit on false notes."""
