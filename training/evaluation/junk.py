"""False notes per minute in sounds without notes, through the streaming path.

Speech and drums are recordings held out of training.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from scipy import signal

from model.config import SAMPLE_RATE
from service.audio.pcm import BadAudioError
from service.engine.local import LocalComputer
from service.engine.runners import EngineModel
from service.protocol.options import OptionsError, StreamOptions
from service.stream.recording import transcribe_array
from training.arrays import F32
from training.music.recordings import AUDIO, AudioError, read_audio
from training.music.synth.acoustics import noise
from training.music.synth.acoustics.surroundings import load_backgrounds

Sound = tuple[str, F32, int]  # name, mono samples, their rate in Hz

NOISE_RMS = np.float32(0.05)  # as from a microphone with too much gain
SWEEP_S, SWEEP_HZ = 20.0, (30.0, 5000.0)


def made_sounds(seconds: float) -> Iterator[Sound]:
    """Silence, noise and a sine sweep; the same in every run."""
    length, rng = round(seconds * SAMPLE_RATE), np.random.default_rng(0)
    yield "digital silence", np.zeros(length, np.float32), SAMPLE_RATE
    for colour in ("white", "pink"):
        sound = NOISE_RMS * noise.coloured(length, colour, SAMPLE_RATE, rng)
        yield f"{colour} noise", sound, SAMPLE_RATE
    time_s = np.arange(length) / SAMPLE_RATE % SWEEP_S
    sweep = 0.25 * signal.chirp(time_s, SWEEP_HZ[0], SWEEP_S, SWEEP_HZ[1], method="logarithmic")
    yield "sine sweep", sweep.astype(np.float32), SAMPLE_RATE


def recorded_sounds(path: Path) -> Iterator[Sound]:
    """An audio file, or all below a folder. Raises AudioError if there is none, or for one that
    cannot be read."""
    files = [path] if path.is_file() else sorted(path.rglob("*"))
    audio = [file for file in files if file.suffix.lower() in AUDIO]
    if not audio:
        raise AudioError(f"no audio ({', '.join(sorted(AUDIO))}) at {path}")
    for file in audio:
        yield (file.name, *read_audio(file))


def held_out_sounds(synth: Path, seconds: float) -> Iterator[Sound]:
    """Recorded speech and drums held out of training, the same in every run, from the data in
    ``synth``. Raises AudioError if there are none."""
    sounds = load_backgrounds(synth, SAMPLE_RATE, held_out=True)
    if not (sounds.voices and sounds.kits):
        raise AudioError(f"no held-out voices and drums in {synth}")
    length = round(seconds * SAMPLE_RATE)
    for name, make in (("held-out speech", sounds.talk), ("held-out drums", sounds.drums)):
        yield name, make(length, np.random.default_rng(0)), SAMPLE_RATE


def evaluate_junk(
    transcriber: EngineModel, options: StreamOptions, sounds: Iterator[Sound]
) -> dict[str, Any]:
    """Transcribes sounds in which every note is false.

    Returns plain values: for each of ``sounds`` its ``seconds``, ``false_notes`` and
    ``false_notes_a_minute``. Raises AudioError for samples that cannot be transcribed.
    """
    found: dict[str, Any] = {}
    print(f"{'sound':24}{'seconds':>9}{'false notes':>13}{'a minute':>10}", flush=True)
    with LocalComputer(transcriber) as computer:
        for name, samples, rate in sounds:
            try:
                count = len(transcribe_array(samples, rate, computer, options).notes)
            except (BadAudioError, OptionsError) as error:
                raise AudioError(f"{name}: {error}") from None
            seconds = len(samples) / rate
            a_minute = 60 * count / max(seconds, 1e-9)
            found[name] = {
                "seconds": seconds,
                "false_notes": count,
                "false_notes_a_minute": a_minute,
            }
            print(f"{name:24}{seconds:9.1f}{count:13}{a_minute:10.1f}", flush=True)
        model = computer.config.name
    return {"model": model, "lookahead_ms": options.lookahead_ms, "sounds": found}
