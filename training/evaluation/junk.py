"""False notes per minute in sounds without notes, through the streaming path."""

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from model.config import SAMPLE_RATE
from service.audio.pcm import BadAudioError
from service.engine.engine import Engine
from service.engine.interface import Transcriber
from service.protocol.options import OptionsError, StreamOptions
from service.session.transcribe import transcribe_array
from training.evaluation.junk_sounds import NOISES, RATE_HZ, SOUNDS
from training.music.recordings import AUDIO, AudioError, read_audio
from training.music.synth.acoustics.backgrounds import load_backgrounds

GOAL_A_MINUTE = 6.0
"""For silence and noise: one false note in ten seconds."""
COMMONEST = 3  # pitches listed


def made_sounds(seconds: float) -> Iterator[tuple[str, NDArray[np.float32], int]]:
    """Name, samples and rate of each of SOUNDS; the same in every run."""
    for name, make in SOUNDS.items():
        seed = list(name.encode())
        yield name, make(round(seconds * RATE_HZ), np.random.default_rng(seed)), RATE_HZ


def recorded_sounds(path: Path) -> Iterator[tuple[str, NDArray[np.float32], int]]:
    """Name, samples and rate of an audio file, or of all below a folder.

    Raises:
        AudioError: there is none, or one cannot be read.
    """
    files = [path] if path.is_file() else sorted(path.rglob("*"))
    audio = [file for file in files if file.suffix.lower() in AUDIO]
    if not audio:
        raise AudioError(f"no audio ({', '.join(sorted(AUDIO))}) at {path}")
    return ((file.name, *read_audio(file)) for file in audio)


def held_out_sounds(
    synth: Path, cache: Path, seconds: float
) -> Iterator[tuple[str, NDArray[np.float32], int]]:
    """Name, samples and rate of recorded speech and drums held out of training.

    The same in every run, from the data in ``synth``, decoded into ``cache``.

    Raises:
        AudioError: there are none.
    """
    sounds = load_backgrounds(synth, cache, SAMPLE_RATE, held_out=True)
    if sounds is None or not (sounds.voices and sounds.kits):
        raise AudioError(f"no held-out voices and drums in {synth}")
    length = round(seconds * SAMPLE_RATE)
    for name, make in (("held-out speech", sounds.talk), ("held-out drums", sounds.drums)):
        yield name, make(length, np.random.default_rng(0)), SAMPLE_RATE


def evaluate_junk(
    transcriber: Transcriber,
    options: StreamOptions,
    sounds: Iterator[tuple[str, NDArray[np.float32], int]],
    show: Callable[[str], object] = lambda _: None,
) -> dict[str, Any]:
    """Transcribe sounds (name, mono samples, rate) in which every note is false.

    Returns plain values: for each of ``sounds`` its ``seconds``, ``false_notes``,
    ``false_notes_a_minute``, the commonest ``pitches`` (MIDI), and whether the ``goal`` is met,
    where there is one.

    Args:
        show: prints a line.

    Raises:
        AudioError: invalid samples, or a rate out of range.
    """
    found: dict[str, Any] = {}
    show(f"{'sound':24}{'seconds':>9}{'false notes':>13}{'a minute':>10}  goal  commonest pitches")
    with Engine(transcriber) as engine:
        for name, samples, rate in sounds:
            try:
                notes = transcribe_array(samples, rate, engine, options).notes
            except (BadAudioError, OptionsError) as error:
                raise AudioError(f"{name}: {error}") from None
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
        model = engine.config.name
    return {"model": model, "lookahead_ms": options.lookahead_ms, "sounds": found}
