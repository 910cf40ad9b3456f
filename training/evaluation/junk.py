"""False notes per minute in sounds without notes, through the streaming path.

Noise is made otherwise than the training backgrounds (``synth.acoustics``), so models have not
trained on it; speech and drums are recordings held out of training.
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
from training.arrays import F32, Rng
from training.music.recordings import AUDIO, AudioError, read_audio
from training.music.synth.acoustics.surroundings import load_backgrounds

Sound = F32
Maker = Callable[[int, Rng], NDArray[np.floating]]  # given the number of samples; full scale 1
Source = tuple[str, Callable[[], tuple[Sound, int]]]
"""A name, and what makes or reads the mono samples and their rate in Hz."""

RATE_HZ = 44_100
NOISE_RMS = 0.05  # as from a microphone with too much gain
PINK = (
    [0.049922035, -0.095993537, 0.050612699, -0.004408786],
    [1, -2.494956002, 2.017265875, -0.522189400],
)
"""A filter that falls by 3 dB an octave (J. O. Smith, Spectral Audio Signal Processing)."""


def white(length: int, rng: Rng) -> NDArray[np.floating]:
    return NOISE_RMS * rng.standard_normal(length)


def pink(length: int, rng: Rng) -> NDArray[np.floating]:
    noise = signal.lfilter(*PINK, rng.standard_normal(length))
    return np.asarray(NOISE_RMS / np.std(noise) * noise)


def sweeps(length: int, _: Rng) -> NDArray[np.floating]:
    """A sine from 30 Hz to 8 kHz in 20 s, repeated."""
    time = np.arange(length) / RATE_HZ % 20.0
    return np.asarray(0.25 * signal.chirp(time, 30, 20, 8000, method="logarithmic"))


SOUNDS: dict[str, Maker] = {
    "digital silence": lambda length, _: np.zeros(length),
    "white noise": white,
    "pink noise": pink,
    "sine sweep": sweeps,
}
"""Made at RATE_HZ."""
COMMONEST = 3  # pitches listed


def made_sounds(seconds: float) -> Iterator[Source]:
    """Each of SOUNDS; the same in every run."""
    for name, make in SOUNDS.items():
        yield name, partial(_made, make, round(seconds * RATE_HZ), RATE_HZ)


def _made(make: Maker, length: int, rate: int) -> tuple[Sound, int]:
    return make(length, np.random.default_rng(0)).astype(np.float32), rate


def recorded_sounds(path: Path) -> Iterator[Source]:
    """An audio file, or all below a folder, by their names there. Raises AudioError if there is
    none."""
    files = [path] if path.is_file() else sorted(path.rglob("*"))
    audio = [file for file in files if file.suffix.lower() in AUDIO]
    if not audio:
        raise AudioError(f"no audio ({', '.join(sorted(AUDIO))}) at {path}")
    base = path.parent if path.is_file() else path
    return ((str(file.relative_to(base)), partial(read_audio, file)) for file in audio)


def held_out_sounds(synth: Path, seconds: float) -> Iterator[Source]:
    """Recorded speech and drums held out of training, the same in every run, from the data in
    ``synth``. Raises AudioError if there are none."""
    sounds = load_backgrounds(synth, SAMPLE_RATE, held_out=True)
    if sounds is None or not (sounds.voices and sounds.kits):
        raise AudioError(f"no held-out voices and drums in {synth}")
    length = round(seconds * SAMPLE_RATE)
    for name, make in (("held-out speech", sounds.talk), ("held-out drums", sounds.drums)):
        yield name, partial(_made, make, length, SAMPLE_RATE)


def evaluate_junk(
    transcriber: EngineModel,
    options: StreamOptions,
    sounds: Iterator[Source],
    show: Callable[[str], object] = lambda _: None,
) -> dict[str, Any]:
    """Transcribes sounds in which every note is false.

    Returns plain values: for each of ``sounds`` its ``seconds``, ``false_notes``,
    ``false_notes_a_minute`` and the commonest ``pitches`` (MIDI); in ``failures`` why others cannot
    be read or transcribed. ``show`` is given lines to print.
    """
    found: dict[str, Any] = {}
    failures: dict[str, str] = {}
    show(f"{'sound':24}{'seconds':>9}{'false notes':>13}{'a minute':>10}  commonest pitches")
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
            found[name] = {
                "seconds": seconds,
                "false_notes": len(notes),
                "false_notes_a_minute": a_minute,
                "pitches": {str(pitch): count for pitch, count in pitches},
            }
            common = ", ".join(f"{pitch} ({count})" for pitch, count in pitches)
            show(f"{name:24}{seconds:9.1f}{len(notes):13}{a_minute:10.1f}  {common}")
        model = computer.config.name
    how = {"model": model, "lookahead_ms": options.lookahead_ms}
    return how | {"sounds": found, "failures": failures}
