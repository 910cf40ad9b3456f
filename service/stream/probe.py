"""Chooses the model of a recording by its start: recordings of pianos have a separate model."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from service.notes.events import Event
from service.stream.segment_pipeline import FileProgress, SegmentPipeline
from service.stream.setup import OnFrames
from service.stream.windows import EngineError, InferenceEngine

PROBE_S = 30.0
"""Duration of the start of a recording that determines the model."""
MIN_PIANO_SHARE = 0.85
"""Minimum share of piano notes in it for the model for pianos. Recordings of real pianos have .90
or more."""
MAX_PIANO_LOAD = 0.1
"""Maximum computing time of the model for pianos, as a share of the duration of the audio."""

Samples = NDArray[np.float32]


class _HeldFrames:
    """Holds frames back until their receiver is known."""

    def __init__(self) -> None:
        self._held: list[tuple[int, Samples]] = []
        self._on_frames: OnFrames = lambda *frames: self._held.append(frames)

    def __call__(self, first_frame: int, frames: Samples) -> None:
        self._on_frames(first_frame, frames)

    def release(self, on_frames: OnFrames | None) -> None:
        """Pass all frames on, including later ones. None drops them."""
        self._on_frames = on_frames or (lambda *_: None)
        for frames in self._held:
            self._on_frames(*frames)
        self._held = []


OpenStream = Callable[[InferenceEngine, OnFrames | None], SegmentPipeline]


class Probe:
    """Start of a recording, transcribed by one model.

    Attributes:
        segments: pipeline of the stream, which can continue with the rest of the recording.
        items: events and progress so far.
        frames: frames so far.
        error: error that stopped the transcription, or None.
    """

    def __init__(
        self,
        open_stream: OpenStream,
        engine: InferenceEngine,
        start: list[Samples],
        duration_s: float | None,
        deadline_s: float = math.inf,
    ) -> None:
        """Transcribe ``start``. Set ``error`` if ``time.monotonic()`` passes the deadline."""
        self._arguments = open_stream, start, duration_s
        self.frames = _HeldFrames()
        self.segments = open_stream(engine, self.frames)
        self.segments.deadline_s = deadline_s
        self.items: list[Event | FileProgress] = []
        self.error: Exception | None = None
        try:
            for block in start:
                self.segments.stream.feed_samples(block)
            self.items.extend(self.segments.items(duration_s, flush=True))
        except (EngineError, TimeoutError) as error:
            self.error = error
        self.segments.deadline_s = math.inf

    @property
    def is_piano(self) -> bool:
        """True if MIN_PIANO_SHARE of the notes are a piano's."""
        notes = self.segments.stream.collector.notes
        piano = sum(note.instrument == "piano" for note in notes)
        return self.error is None and bool(notes) and piano >= MIN_PIANO_SHARE * len(notes)

    def repeated_by(self, engine: InferenceEngine) -> Probe:
        """Transcribe the same start with another model. Return this probe if that fails or takes
        too long."""
        length_s = self.segments.stream.totals.audio_s
        deadline_s = time.monotonic() + MAX_PIANO_LOAD * length_s
        open_stream, start, duration_s = self._arguments
        probe = Probe(open_stream, engine, start, duration_s, deadline_s)
        if probe.error is None:
            return probe
        probe.segments.close()
        return self


def split_start(blocks: Iterator[Samples], count: int) -> list[Samples]:
    """Return the first blocks, with ``count`` samples or more if there are as many."""
    start: list[Samples] = []
    while count > 0 and (block := next(blocks, None)) is not None:
        start.append(block)
        count -= len(block)
    return start
