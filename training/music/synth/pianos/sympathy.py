"""The other strings of a piano, which sound in sympathy while the pedal is down."""

from functools import lru_cache

import numpy as np
from scipy import signal

from training.arrays import F32, F64, Rng
from training.music.synth.pianos.dampers import contact

STRINGS = range(21, 109)  # MIDI pitches of the strings that sound in sympathy
STRING_PARTIALS = 6
RESPONSE_S = 2.0
SYMPATHY_DB = (-30.0, -15.0)  # level of the resonance
SYMPATHY_FADE_S = (0.08, 0.4)  # time constant with which the dampers end it
RESPONSES = 3  # number of different soundboards, each made once per process


@lru_cache(RESPONSES)
def strings_response(variant: int, sample_rate: int) -> F32:
    """Impulse response of all undamped strings of a piano: RESPONSE_S of samples. Each string
    resonates at its first partials, with the decay of its register (60 dB in about 15 s in the bass
    and 1.5 s in the treble) and random phases."""
    rng = np.random.default_rng(variant)
    time = np.arange(int(RESPONSE_S * sample_rate), dtype=np.float32) / sample_rate
    response = np.zeros(len(time), np.float32)
    for pitch in STRINGS:
        fundamental = 440 * 2 ** ((pitch - 69 + rng.normal(0, 0.02)) / 12)
        decay = 6.9 / (15 * 2 ** (-(pitch - STRINGS.start) / 26))
        envelope = np.exp(-decay * time)
        for partial in range(1, STRING_PARTIALS + 1):
            frequency = fundamental * partial
            if frequency > 0.45 * sample_rate:
                break
            phase = rng.uniform(0, 2 * np.pi)
            level = rng.uniform(0.3, 1) / partial
            response += level * envelope * np.cos(2 * np.pi * frequency * time + phase)
    return response / np.float32(np.linalg.norm(response))


def random_sympathy(audio: F32, depth: F64, tuning_cents: float, sample_rate: int, rng: Rng) -> F32:
    """The other strings, sounding along while a pedal of ``depth`` [n] frees them: float32 [n].
    ``audio`` [n] drives them as far as the dampers are clear. They are tuned ``tuning_cents`` from
    440 Hz; their level and how fast they fade once the pedal is up are random."""
    response = strings_response(int(rng.integers(RESPONSES)), sample_rate)
    position = np.arange(len(response)) * 2 ** (tuning_cents / 1200)
    response = np.interp(position, np.arange(len(response)), response).astype(np.float32)
    level_db, fade_s = rng.uniform(*SYMPATHY_DB), rng.uniform(*SYMPATHY_FADE_S)
    free = (1 - contact(depth)).astype(np.float32)
    driven = audio * free
    rung = np.asarray(signal.oaconvolve(driven, response)[: len(audio)], np.float32)
    # Follows ``free`` upwards at once and downwards with the dampers' time constant.
    fall = np.arange(len(audio)) / (fade_s * sample_rate)
    rung *= np.exp(np.maximum.accumulate(np.log(free + 1e-6) + fall) - fall).astype(np.float32)
    before, after = float(np.linalg.norm(driven)), float(np.linalg.norm(rung))
    scale = 10 ** (level_db / 20) * before / max(1e-9, after)
    return rung * np.float32(scale)
