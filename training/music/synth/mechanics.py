"""What sounds in a piano beside its notes: keys and dampers falling back, the pedal, and the other
strings in sympathy.
"""

import json
from functools import lru_cache
from pathlib import Path

import numpy as np
import soundfile
from scipy import signal

from training.arrays import F32, F64, Rng
from training.music.notes import Notes
from training.music.synth.dampers import contact

LEVEL_DB = (-55.0, -38.0)
"""Level of a key's noise beside the peak of the music: some 30 to 40 dB below a single note."""
PEDAL_DB = (-6.0, 6.0)  # level of the pedal's noise beside a key's
SPREAD_DB = 3.0  # standard deviation of the level of single noises


Mechanics = dict[str, list[tuple[int, F32]]]
"""Recorded noises by kind ("release", of a key and its damper falling back, "pedal_down",
"pedal_up"): the MIDI pitch of the key, 0 for pedals, and float32 with a peak of 1."""


def load_mechanics(folder: Path) -> Mechanics | None:
    """Read ``releases/`` of a bank's folder; None if the bank has none."""
    index = folder / "releases" / "releases.json"
    if not index.exists():
        return None
    noises: Mechanics = {}
    for entry in json.loads(index.read_text())["sets"].values():
        audio, _ = soundfile.read(folder / entry["file"], dtype="float32")
        for note in entry["notes"]:
            sound = audio[note["start"] : note["start"] + note["length"]]
            peak = np.float32(max(1e-6, float(np.abs(sound).max())))
            noises.setdefault(note["kind"], []).append((note["key"] or 0, sound / peak))
    return noises


def random_noise(
    mechanics: Mechanics, notes: Notes, pedal: F64, length: int, sample_rate: int, rng: Rng
) -> F32:
    """Float32 [length]: the noise of each key at its release and of each press of a pedal [m, 3].

    Its level is drawn from LEVEL_DB, relative to music with a peak of 1. The pedal is louder the
    farther it moves.
    """
    out = np.zeros(length, np.float32)
    keys_db = float(rng.uniform(*LEVEL_DB))
    pedal_db = keys_db + float(rng.uniform(*PEDAL_DB))

    def add(sound: F32, second: float, level_db: float) -> None:
        at = int(second * sample_rate)
        if 0 <= at < length:
            gain = np.float32(10 ** ((level_db + SPREAD_DB * rng.standard_normal()) / 20))
            sound = sound[: length - at]
            out[at : at + len(sound)] += gain * sound

    keys = np.array([key for key, _ in mechanics["release"]])
    nearest = np.abs(notes.pitch[:, None] - keys[None, :]).argmin(axis=1)
    for which, second in zip(nearest, notes.released, strict=True):
        add(mechanics["release"][which][1], float(second), keys_db)
    for begin, end, depth in pedal:
        level_db = pedal_db + 20 * np.log10(max(0.1, depth))
        for kind, second in (("pedal_down", begin), ("pedal_up", end)):
            sounds = mechanics[kind]
            add(sounds[rng.integers(len(sounds))][1], float(second), level_db)
    return out


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
