"""False notes per minute in sounds without notes, through the streaming path.

Sounds are synthesised differently from the training backgrounds (``synth.acoustics``), so models
have not trained on similar ones: noise is filtered instead of shaped in its spectrum. Speech and
drums are recorded (``held_out_sounds``).
"""

from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import signal

from model.config import SAMPLE_RATE
from service.audio.pcm import BadAudioError
from service.engine.local import LocalComputer
from service.engine.runners import EngineModel
from service.protocol.options import OptionsError, StreamOptions
from service.stream.recording import transcribe_array
from training.music.recordings import AUDIO, AudioError, read_audio
from training.music.synth.acoustics.surroundings import load_backgrounds

Sound = NDArray[np.float32]
Maker = Callable[[int, np.random.Generator], Sound]
"""Given the number of samples; full scale 1."""
Source = tuple[str, Callable[[], tuple[Sound, int]]]
"""A name, and what makes or reads the mono samples and their rate in Hz."""

RATE_HZ = 44_100
NOISE_DB = -26.0  # RMS in dBFS, as from a microphone with too much gain
ROOM_DB = -50.0  # a quiet room at the gain for music


def _level(sound: NDArray[np.floating], rms_db: float) -> Sound:
    rms = float(np.sqrt(np.mean(np.square(sound))))
    return np.asarray(sound * (10 ** (rms_db / 20) / max(rms, 1e-9)), np.float32)


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
    low, slowest = (signal.butter(2, hz, fs=RATE_HZ, output="sos") for hz in (200, 0.3))
    rumble = signal.sosfilt(low, rng.standard_normal(length))
    hiss = pink(length, rng)
    slow = signal.sosfilt(slowest, rng.standard_normal(length))
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


SOUNDS: dict[str, Maker] = {
    "digital silence": lambda length, _: np.zeros(length, np.float32),
    "room noise": room,
    "white noise": lambda length, rng: _level(rng.standard_normal(length), NOISE_DB),
    "pink noise": pink,
    "sine sweep": sine_sweep,
}
"""Made at RATE_HZ."""
NOISES = ("digital silence", "room noise", "white noise", "pink noise")
"""Sounds with a limit on false notes."""
GOAL_A_MINUTE = 6.0
"""For silence and noise: one false note in ten seconds."""
COMMONEST = 3  # pitches listed


def made_sounds(seconds: float) -> Iterator[Source]:
    """Each of SOUNDS; the same in every run."""
    length = round(seconds * RATE_HZ)
    for name, make in SOUNDS.items():
        yield name, partial(_made, make, length, RATE_HZ, list(name.encode()))


def _made(make: Maker, length: int, rate: int, seed: int | list[int]) -> tuple[Sound, int]:
    return make(length, np.random.default_rng(seed)), rate


def recorded_sounds(path: Path) -> Iterator[Source]:
    """An audio file, or all below a folder, by their names there.

    Raises:
        AudioError: there is none.
    """
    files = [path] if path.is_file() else sorted(path.rglob("*"))
    audio = [file for file in files if file.suffix.lower() in AUDIO]
    if not audio:
        raise AudioError(f"no audio ({', '.join(sorted(AUDIO))}) at {path}")
    base = path.parent if path.is_file() else path
    return ((str(file.relative_to(base)), partial(read_audio, file)) for file in audio)


def held_out_sounds(synth: Path, seconds: float) -> Iterator[Source]:
    """Recorded speech and drums held out of training.

    The same in every run, from the data in ``synth``.

    Raises:
        AudioError: there are none.
    """
    sounds = load_backgrounds(synth, SAMPLE_RATE, held_out=True)
    if sounds is None or not (sounds.voices and sounds.kits):
        raise AudioError(f"no held-out voices and drums in {synth}")
    length = round(seconds * SAMPLE_RATE)
    for name, make in (("held-out speech", sounds.talk), ("held-out drums", sounds.drums)):
        yield name, partial(_made, make, length, SAMPLE_RATE, 0)


def evaluate_junk(
    transcriber: EngineModel,
    options: StreamOptions,
    sounds: Iterator[Source],
    show: Callable[[str], object] = lambda _: None,
) -> dict[str, Any]:
    """Transcribe sounds in which every note is false.

    Returns plain values: for each of ``sounds`` its ``seconds``, ``false_notes``,
    ``false_notes_a_minute``, the commonest ``pitches`` (MIDI), and whether the ``goal`` is met,
    where there is one; in ``failures`` why others cannot be read or transcribed.

    Args:
        show: prints a line.
    """
    found: dict[str, Any] = {}
    failures: dict[str, str] = {}
    show(f"{'sound':24}{'seconds':>9}{'false notes':>13}{'a minute':>10}  goal  commonest pitches")
    with LocalComputer(transcriber) as computer:
        for name, read in sounds:
            try:
                samples, rate = read()
                notes = transcribe_array(samples, rate, computer, options).notes
            except (AudioError, BadAudioError, OptionsError) as error:
                failures[name] = str(error)
                show(f"not scored: {name}: {error}")
                continue
            seconds = len(samples) / rate
            a_minute = 60 * len(notes) / seconds if seconds else 0.0
            pitches = Counter(note.pitch for note in notes).most_common(COMMONEST)
            goal = {"goal": GOAL_A_MINUTE, "met": a_minute <= GOAL_A_MINUTE}
            found[name] = {
                "seconds": seconds,
                "false_notes": len(notes),
                "false_notes_a_minute": a_minute,
                "pitches": {str(pitch): count for pitch, count in pitches},
                **(goal if name in NOISES else {}),
            }
            met = {True: "met", False: "MISSED", None: ""}[found[name].get("met")]
            common = ", ".join(f"{pitch} ({count})" for pitch, count in pitches)
            show(f"{name:24}{seconds:9.1f}{len(notes):13}{a_minute:10.1f}  {met:6}{common}")
        model = computer.config.name
    how = {"model": model, "lookahead_ms": options.lookahead_ms}
    return how | {"sounds": found, "failures": failures}
