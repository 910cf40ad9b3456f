"""The note tracker over the probabilities of a whole piece."""

import asyncio
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from model.config import ModelConfig
from service.engine.batching import Priority
from service.engine.engine import Engine
from service.engine.framer import Framer, OnFrames
from service.engine.windows import WindowSchedule
from service.notes.score import Score
from service.notes.tracker import NoteTracker
from service.notes.tracker_settings import TrackerSettings
from service.protocol.options import StreamOptions
from service.session.transcribe import transcribe_array
from training.music.metrics import NoteList, estimated_notes

LOOKAHEADS_MS = (100.0, 200.0)
"""Look-aheads at which settings are judged."""
ANYTIME = StreamOptions(lookahead_ms=200.0)


def full_age(config: ModelConfig) -> int:
    """The age in frames at which the anytime mode has a frame's full look-ahead."""
    return ANYTIME.lookahead_hops(config.sample_rate) - config.newest_hops


def note_heads(heads: tuple[str, ...]) -> tuple[tuple[str, ...], list[int]]:
    """The heads that the tracker reads, and their rows."""
    rows = [row for row, head in enumerate(heads) if not head.startswith("instrument:")]
    return tuple(heads[row] for row in rows), rows


def lookahead_probabilities(
    engine: Engine, audio: NDArray[np.float32], rows: list[int]
) -> Iterator[NDArray[np.float32]]:
    """[heads, frames, PITCHES] of audio at the model's rate, for each of LOOKAHEADS_MS."""
    for lookahead in LOOKAHEADS_MS:
        options = StreamOptions(lookahead_ms=lookahead, block_frames=8)
        heard = transcribe_array(audio, engine.config.sample_rate, engine, options)
        yield heard.probabilities[rows]


def tracked(
    settings: TrackerSettings,
    probabilities: NDArray[np.float32],
    frame_s: float,
    heads: tuple[str, ...],
) -> NoteList:
    """Notes of [heads, frames, PITCHES]."""
    tracker = NoteTracker(settings, frame_s, heads)
    score = Score()
    known = (*tracker.push(probabilities), *tracker.finish(probabilities.shape[1]))
    score.add(event for _, event in known)
    return estimated_notes(score.notes)


def run_windows(
    engine: Engine, audio: NDArray[np.float32], columns: int, last_age: int, take: OnFrames
) -> None:
    """Calls ``take`` with the newest frame and the probabilities of every window in anytime mode,
    [heads, columns, PITCHES]: of audio at the model's rate, a window every hop."""
    files = Priority.FILE

    async def run() -> None:
        schedule = WindowSchedule(engine.config.newest_hops, 1, columns - 1, last_age)
        framer = Framer(engine, files, schedule, 0, 0, engine.settings.limit(files), take)
        await framer.write(audio)
        await framer.finish()
        framer.close()

    asyncio.run(run())
