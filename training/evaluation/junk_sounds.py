"""Sounds without notes, for measuring false notes.

They are synthesised differently from the training backgrounds (``synth.acoustics``), so models have
not trained on similar sounds: drums use membrane modes and beating square waves, and noise is
filtered instead of shaped in its spectrum. Recorded speech is in
``training.evaluation.junk.held_out_sounds``.
"""

from __future__ import annotations

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
    """Digital silence."""
    return np.zeros(length, np.float32)


def white(length: int, rng: np.random.Generator) -> Sound:
    """White noise."""
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


def drum_kit(length: int, rng: np.random.Generator) -> Sound:
    """A rock beat: bass drum, snare, toms in the fills, hi-hat, a cymbal every fourth bar."""
    out = np.zeros(length)
    step_s = 60 / 112 / 4  # sixteenths at 112 beats a minute
    for number in range(int(length / RATE_HZ / step_s)):
        place, bar = number % 16, number // 16
        strokes = [_hat(0.03, rng)] if place % 2 == 0 else []
        if place in (0, 7, 10):
            strokes.append(_membrane(55, 0.18, 1.2, rng))
        if place in (4, 12):
            strokes.append(_membrane(185, 0.09, 0.5, rng) + 0.5 * _rattle(0.12, rng))
        if bar % 4 == 3 and place >= 12:
            strokes.append(_membrane((190, 160, 130, 100)[place - 12], 0.25, 0.3, rng))
        if bar % 4 == 0 and place == 0:
            strokes.append(0.7 * _hat(0.7, rng))
        at = int((number * step_s + rng.uniform(0, 0.008)) * RATE_HZ)
        for stroke in strokes:
            part = stroke[: max(0, length - at)] * rng.uniform(0.6, 1.0)
            out[at : at + len(part)] += part
    return np.asarray(0.5 * out / max(1e-9, np.abs(out).max()), np.float32)


_STROKE_S = 1.2


def _membrane(
    base_hz: float, decay_s: float, bend: float, rng: np.random.Generator
) -> NDArray[np.float64]:
    """Modes of a round membrane (zeros of Bessel functions), sharper right after the stroke."""
    time = np.arange(int(_STROKE_S * RATE_HZ)) / RATE_HZ
    turns = base_hz * (time + bend * 0.02 * (1 - np.exp(-time / 0.02)))
    out = np.zeros(len(time))
    for number, ratio in enumerate((1.0, 1.594, 2.136, 2.296, 2.653, 2.918)):
        decay = decay_s / (1 + 0.8 * number)
        strength = rng.uniform(0.5, 1.0) / (1 + number)
        out += strength * np.sin(2 * np.pi * ratio * turns) * np.exp(-time / decay)
    click = rng.standard_normal(len(time)) * np.exp(-time / 0.003)
    return np.asarray(out + 0.3 * click)


def _rattle(decay_s: float, rng: np.random.Generator) -> NDArray[np.float64]:
    time = np.arange(int(_STROKE_S * RATE_HZ)) / RATE_HZ
    band = signal.butter(2, [1200, 9000], "bandpass", fs=RATE_HZ, output="sos")
    noise = rng.standard_normal(len(time)) * np.exp(-time / decay_s)
    return np.asarray(signal.sosfilt(band, noise))


def _hat(decay_s: float, rng: np.random.Generator) -> NDArray[np.float64]:
    """Six inharmonic square waves, high-passed, as in drum machines."""
    time = np.arange(int(_STROKE_S * RATE_HZ)) / RATE_HZ
    tones = (205.3, 304.4, 369.6, 522.7, 540.0, 800.0)
    metal = sum(np.sign(np.sin(2 * np.pi * hz * time + rng.uniform(0, 6.3))) for hz in tones)
    high = signal.butter(3, 6500, "highpass", fs=RATE_HZ, output="sos")
    return np.asarray(0.4 * signal.sosfilt(high, metal) * np.exp(-time / decay_s))


SOUNDS: dict[str, Callable[[int, np.random.Generator], Sound]] = {
    "digital silence": silence,
    "room noise": room,
    "white noise": white,
    "pink noise": pink,
    "sine sweep": sine_sweep,
    "drums": drum_kit,
}
"""Makers of ``length`` samples at RATE_HZ, full scale 1."""
NOISES = ("digital silence", "room noise", "white noise", "pink noise")
"""Sounds with a limit on false notes."""
