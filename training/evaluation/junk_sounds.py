"""Sounds without notes, for measuring false notes.

They are synthesised differently from the training backgrounds (``synth.acoustics``), so models have
not trained on similar sounds: speech sums harmonics under a gliding spectral envelope instead of
filtering pulses, drums use membrane modes and beating square waves, and noise is filtered instead
of shaped in its spectrum.
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


# First three formants (Hz) of seven vowels of women (Hillenbrand et al., 1995, rounded), and of
# l-like and n-like murmurs between them.
_FORMANTS_HZ = np.array(
    [
        [437, 2761, 3372],
        [536, 2530, 3047],
        [731, 2058, 2979],
        [936, 1551, 2815],
        [781, 1136, 2824],
        [555, 1035, 2828],
        [459, 1105, 2735],
        [360, 1200, 2600],
        [280, 1600, 2500],
    ]
)
_CONTROL_S = 0.005  # spacing at which pitch, loudness and formants are drawn


def talk(length: int, rng: np.random.Generator) -> Sound:
    """Speech-like sound of one voice after another, each for some 15 s; peak 0.5.

    Harmonics of a pitch that falls through each phrase and moves with each stress, weighted by an
    envelope whose formants glide; noise in bands for fricatives; gaps for stops and breaths.
    """
    turn = 15 * RATE_HZ
    parts = [_voice(min(turn, length - at), rng) for at in range(0, length, turn)]
    return np.concatenate(parts) if parts else np.zeros(0, np.float32)


def _voice(length: int, rng: np.random.Generator) -> Sound:
    time = np.arange(length) / RATE_HZ
    controls = np.arange(0, length / RATE_HZ + 2 * _CONTROL_S, _CONTROL_S)
    base_hz, tract = (115.0, 0.87) if rng.random() < 0.5 else (205.0, 1.0)
    pitch, loud, formants, frication = _plan(controls, base_hz, tract, rng)

    def at_audio_rate(values: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.interp(time, controls, values)

    turns = np.cumsum(at_audio_rate(pitch)) / RATE_HZ
    voiced = np.zeros(length)
    for number in range(1, int(4500 / base_hz)):
        envelope = np.zeros(len(controls))
        for formant, (width, gain) in enumerate(((90, 1.0), (130, 0.5), (190, 0.25))):
            distance = (number * pitch - formants[:, formant]) / width
            envelope += gain / (1 + distance**2)
        tilt = number**-0.7
        voiced += tilt * at_audio_rate(envelope * loud) * np.sin(2 * np.pi * number * turns)
    hiss = signal.sosfilt(
        signal.butter(2, [2500, 8000], "bandpass", fs=RATE_HZ, output="sos"),
        rng.standard_normal(length),
    )
    out = voiced + 0.3 * at_audio_rate(frication) * hiss
    return np.asarray(0.5 * out / max(1e-9, np.abs(out).max(initial=0)), np.float32)


def _plan(
    controls: NDArray[np.float64], base_hz: float, tract: float, rng: np.random.Generator
) -> tuple[NDArray[np.float64], ...]:
    """Pitch in Hz, loudness, formants in Hz [n, 3] and frication at the times of ``controls``."""
    knots: list[tuple[float, ...]] = [(0.0,) * 5]  # seconds, semitones, loudness, vowel, frication

    def add(seconds: float, *values: float) -> None:
        knots.append((knots[-1][0] + seconds, *values))

    while knots[-1][0] < controls[-1]:
        add(rng.uniform(0.2, 0.7), 4.0, 0.0, 0, 0.0)  # breath; the next phrase begins high
        count = int(rng.integers(5, 16))
        for syllable in range(count):
            fall = 4.0 - 7.0 * syllable / count + rng.normal(0, 1.2)
            vowel = int(rng.integers(len(_FORMANTS_HZ)))
            if rng.random() < 0.4:
                add(rng.uniform(0.04, 0.1), fall, 0.05, vowel, 1.0)
            elif rng.random() < 0.5:
                add(rng.uniform(0.03, 0.07), fall, 0.0, vowel, 0.0)
            loud = rng.uniform(0.5, 1.0)
            add(rng.uniform(0.03, 0.06), fall + rng.uniform(0, 1.5), loud, vowel, 0.0)
            add(rng.uniform(0.05, 0.16), fall - rng.uniform(0, 2.5), 0.8 * loud, vowel, 0.0)
    times, pitches, louds, vowels, hisses = np.array(knots).T
    jitter = rng.normal(0, 0.12, len(controls))
    pitch = base_hz * 2 ** ((np.interp(controls, times, pitches) + jitter) / 12)
    formants = np.stack(
        [np.interp(controls, times, tract * _FORMANTS_HZ[vowels.astype(int), i]) for i in range(3)],
        axis=1,
    )
    return (
        pitch,
        np.interp(controls, times, louds),
        formants,
        np.interp(controls, times, hisses),
    )


SOUNDS: dict[str, Callable[[int, np.random.Generator], Sound]] = {
    "digital silence": silence,
    "room noise": room,
    "white noise": white,
    "pink noise": pink,
    "sine sweep": sine_sweep,
    "drums": drum_kit,
    "speech": talk,
}
"""Makers of ``length`` samples at RATE_HZ, full scale 1."""
NOISES = ("digital silence", "room noise", "white noise", "pink noise")
"""Sounds with a limit on false notes."""
