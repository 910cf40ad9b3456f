"""Made-up tones: sums of sines, as sound generators and programming examples make them.

No instrument of the bank sounds so clean or begins so abruptly, so an onset classifier
that is fitted on instruments and voices alone misses such tones.
"""

import numpy as np
from numpy.typing import NDArray

LOWEST, HIGHEST = 36, 96  # MIDI pitches
GAP_S = (0.1, 2.0)  # between beginnings, on average
LENGTH_S = (0.2, 2.5)
CHANGED = 0.1  # share of the beginnings at which timbre and pace change
PARTIALS = 12  # at most
ROLL_OFF = (0.3, 2.0)  # amplitudes are partial ** -this
DECAY_PER_S = (0.0, 6.0)  # of the first partial
DECAY_RISE = (0.0, 0.6)  # faster by this share for each further partial
RAMP_S = (0.0005, 0.02)  # of beginnings and ends
LEVEL = (0.01, 0.8)  # peak amplitude of a tone, all loudnesses equally often


def tones(
    length: int, rate: int, rng: np.random.Generator
) -> tuple[NDArray[np.float32], NDArray[np.float64], NDArray[np.int16]]:
    """Tones one after another, some together.

    Args:
        length: samples.
        rate: in Hz.

    Returns:
        audio: [length], within -1 to 1.
        onset_s, pitch: of each tone.
    """
    audio = np.zeros(length)
    onset_s, pitches = [], []
    at_s, gap_s = 0.0, 0.0
    free_s = np.zeros(HIGHEST + 1)  # when each pitch has ended
    while True:
        if not gap_s or rng.random() < CHANGED:
            partials, gap_s = _timbre(rng), np.exp(rng.uniform(*np.log(GAP_S)))
        at_s += gap_s * rng.uniform(0.3, 1.7)
        if at_s * rate >= length:
            break
        for _ in range(rng.choice((1, 1, 1, 2, 3))):
            pitch = int(rng.integers(LOWEST, HIGHEST + 1))
            if free_s[pitch] > at_s:
                continue
            seconds = rng.uniform(*LENGTH_S)
            free_s[pitch] = at_s + seconds
            start = round(at_s * rate)
            tone = _tone(pitch, seconds, partials, rate, rng)[: length - start]
            audio[start : start + len(tone)] += tone
            onset_s.append(at_s)
            pitches.append(pitch)
    audio /= max(1.0, float(np.abs(audio).max()))
    return audio.astype(np.float32), np.array(onset_s), np.array(pitches, np.int16)


def _timbre(rng: np.random.Generator) -> NDArray[np.float64]:
    """Amplitude and share of the decay of each partial: [2, partials]."""
    number = np.arange(1, rng.integers(1, PARTIALS + 1) + 1)
    amplitude = number ** -rng.uniform(*ROLL_OFF)
    if rng.random() < 0.25:
        amplitude[1::2] = 0  # odd ones alone, as in a square wave
    return np.stack([amplitude, 1 + rng.uniform(*DECAY_RISE) * (number - 1)])


def _tone(
    pitch: int, seconds: float, partials: NDArray[np.float64], rate: int, rng: np.random.Generator
) -> NDArray[np.float64]:
    since = np.arange(int(seconds * rate)) / rate
    number = np.arange(1, partials.shape[1] + 1)[:, None]
    frequency = 440 * 2 ** ((pitch - 69) / 12) * number
    amplitude, decay = partials[:, :, None]
    amplitude = np.where(frequency < rate / 2, amplitude, 0)
    decay = decay * rng.uniform(*DECAY_PER_S)
    phase = 2 * np.pi * (frequency * since + rng.uniform(0, 1, number.shape) * rng.integers(2))
    tone = (amplitude * np.exp(-decay * since) * np.sin(phase)).sum(axis=0)
    ramp = rng.uniform(*RAMP_S)
    edges = np.minimum(1, np.minimum(since, since[::-1]) / ramp)
    level = np.exp(rng.uniform(*np.log(LEVEL)))
    return np.asarray(edges * tone * level / max(1e-9, float(np.abs(amplitude).sum())))
