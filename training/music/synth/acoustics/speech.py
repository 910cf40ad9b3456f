"""Speech-like voices without notes: a gliding glottal source through moving formants.

A source-filter synthesiser (G. Fant, Acoustic Theory of Speech Production): pulses of constantly
changing pitch pass through the resonances of one vowel after another, with hisses between them as
consonants.
"""

import numpy as np
from numpy.typing import NDArray
from scipy import signal

# Three formants (Hz) of vowels of an adult male voice (Peterson and Barney, 1952); other voices
# scale them.
_VOWELS = np.array(
    [
        [270, 2290, 3010],
        [390, 1990, 2550],
        [530, 1840, 2480],
        [660, 1720, 2410],
        [730, 1090, 2440],
        [570, 840, 2410],
        [440, 1020, 2240],
        [300, 870, 2240],
        [640, 1190, 2390],
        [490, 1350, 1690],
    ]
)
_BANDWIDTHS = np.array([80.0, 110.0, 170.0])  # Hz
_FALL_HZ = 100.0  # above it the source falls by 6 dB an octave, the lips' radiation included


def speech(length: int, sample_rate: int, rng: np.random.Generator) -> NDArray[np.float32]:
    """One voice, talking with pauses; peak 1, float32 [length]."""
    syllables = _syllables(length / sample_rate, rng)
    tract = float(rng.uniform(0.95, 1.35))  # shorter vocal tracts resonate higher
    base_hz = float(np.exp(rng.uniform(np.log(80), np.log(280))))
    source = _glottal(length, sample_rate, base_hz, rng)
    hiss = rng.standard_normal(length).astype(np.float32)
    breath = np.float32(rng.uniform(0.005, 0.05))
    out = np.zeros(length, np.float32)
    for begin_s, end_s in syllables:
        begin, end = int(begin_s * sample_rate), min(length, int(end_s * sample_rate))
        if end - begin < 16:
            continue
        shape = signal.windows.tukey(end - begin, 0.6).astype(np.float32)
        vowel = (source[begin:end] + breath * hiss[begin:end]) * shape
        formants = tract * _VOWELS[rng.integers(len(_VOWELS))] * rng.uniform(0.92, 1.08, 3)
        loud = np.float32(rng.lognormal(0, 0.4))
        out[begin:end] += loud * _resonate(vowel, formants, sample_rate)
        if rng.random() < 0.45:
            _consonant(out, begin, hiss, loud, sample_rate, rng)
    peak = float(np.abs(out).max(initial=0))
    return out / np.float32(peak) if peak > 0 else out


def _syllables(seconds: float, rng: np.random.Generator) -> NDArray[np.float64]:
    """Begin and end of each syllable, [n, 2]; phrases of some syllables, then a breath."""
    times, now = [], float(rng.uniform(0, 0.5))
    pace = float(rng.uniform(0.12, 0.26))
    while now < seconds:
        for _ in range(rng.integers(3, 15)):
            span = pace * rng.lognormal(0, 0.3)
            times.append((now, now + 1.25 * span))  # neighbours overlap: formants glide
            now += span
        now += rng.uniform(0.15, 0.9)
    return np.array(times)


def _glottal(
    length: int, sample_rate: int, base_hz: float, rng: np.random.Generator
) -> NDArray[np.float32]:
    """Pulses with the wandering pitch of speech, lowpassed; peak about 1."""
    knots = np.arange(0, length + sample_rate, 0.11 * sample_rate)
    bend = rng.normal(0, rng.uniform(1, 3), len(knots))  # semitones from syllable to syllable
    phrase = 2.5 * np.cos(2 * np.pi * np.arange(len(knots)) / rng.uniform(12, 30))
    pitch = base_hz * 2 ** (np.interp(np.arange(length), knots, bend + phrase) / 12)
    phase = np.cumsum(pitch / sample_rate)
    beats = np.flatnonzero(np.diff(np.floor(phase)) > 0) + 1
    late = np.clip((phase[beats] % 1) * sample_rate / pitch[beats], 0, 1)  # samples since the beat
    pulses = np.zeros(length + 1, np.float32)
    force = rng.normal(1, 0.05, len(beats))
    pulses[beats] += (1 - late) * force
    pulses[beats - 1] += late * force
    fall = np.exp(-2 * np.pi * _FALL_HZ / sample_rate)
    out: NDArray[np.float32] = signal.lfilter([1 - fall], [1, -fall], pulses[:length])
    return (out / np.float32(max(1e-9, np.abs(out).max()))).astype(np.float32)


def _resonate(
    sound: NDArray[np.float32], formants: NDArray[np.float64], sample_rate: int
) -> NDArray[np.float32]:
    """The formants' two-pole resonators in cascade."""
    radius = np.exp(-np.pi * _BANDWIDTHS / sample_rate)
    angle = 2 * np.pi * np.minimum(formants, 0.45 * sample_rate) / sample_rate
    sections = np.zeros((len(formants), 6))
    sections[:, 3] = 1
    sections[:, 4] = -2 * radius * np.cos(angle)
    sections[:, 5] = radius**2
    sections[:, 0] = sections[:, 3:].sum(axis=1)  # gain 1 at 0 Hz
    return np.asarray(signal.sosfilt(sections, sound), np.float32)


def _consonant(
    out: NDArray[np.float32],
    begin: int,
    hiss: NDArray[np.float32],
    loud: np.float32,
    sample_rate: int,
    rng: np.random.Generator,
) -> None:
    """A hiss of 30 to 120 ms before a vowel, added to ``out``."""
    first = max(0, begin - int(rng.uniform(0.03, 0.12) * sample_rate))
    if begin - first < 16:
        return
    low = float(rng.uniform(0.2, 0.6))  # of the Nyquist frequency
    band = signal.butter(1, [low, 0.95], "bandpass", output="sos")
    sound = hiss[first:begin] * signal.windows.hann(begin - first)
    out[first:begin] += loud * np.float32(rng.uniform(0.02, 0.3)) * signal.sosfilt(band, sound)
