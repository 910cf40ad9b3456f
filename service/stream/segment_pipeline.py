"""Computes a recording in segments, on all workers at once."""

import math
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Literal

from pydantic import BaseModel

from service.notes.events import Event
from service.notes.tracker_settings import TrackerSettings
from service.protocol.options import AudioFormat, StreamOptions
from service.stream.setup import OnFrames
from service.stream.stream import Stream
from service.stream.windows import InferenceEngine, Probabilities

MAX_SEGMENTS_IN_FLIGHT = 16
"""Maximum number of segments of a recording that are computed at once, with any number of workers.
Each needs up to 24 MB, and the tuner stores its estimates of the last 13 minutes."""


class FileProgress(BaseModel):
    """Progress in a file. ``fraction``, 0 to 1, is None if the header states no duration."""

    type: Literal["progress"] = "progress"
    frames: int
    time_s: float
    fraction: float | None


class SegmentPipeline:
    """Computes a recording in segments, several at once, and returns the results in order."""

    def __init__(
        self,
        engine: InferenceEngine,
        audio: AudioFormat,
        options: StreamOptions,
        max_notes: float = math.inf,
        on_frames: OnFrames | None = None,
    ) -> None:
        self.stream = Stream(
            engine.config,
            TrackerSettings.from_card(engine.card),
            audio,
            options,
            max_notes=max_notes,
            segments=True,
            on_frames=on_frames,
        )
        self._engine = engine
        self._in_flight: deque[Future[Probabilities]] = deque()

    def items(
        self, duration_s: float | None, flush: bool = False
    ) -> Iterator[Event | FileProgress]:
        """Yield the events of ``results``, and the progress after each segment. duration_s:
        duration of the recording."""
        for probabilities in self.results(flush):
            yield from self.stream.process_predictions(probabilities)
            yield _progress(self.stream, duration_s)

    def results(self, flush: bool = False) -> Iterator[Probabilities]:
        """Submit complete segments and yield the oldest results while the maximum number of
        segments is in flight. flush: also submit an incomplete segment, and yield all results."""
        while self.stream.pending_windows >= (1 if flush else self.stream.segment_windows):
            due = self.stream.next_windows(self.stream.segment_windows, self.stream.preroll_windows)
            assert due is not None
            self._in_flight.append(self._engine.submit(due))
            yield from self._next_results(min(self._engine.workers, MAX_SEGMENTS_IN_FLIGHT))
        if flush:
            yield from self._next_results(0)

    def _next_results(self, in_flight: int) -> Iterator[Probabilities]:
        while len(self._in_flight) > in_flight:
            yield self._in_flight.popleft().result()

    def close(self) -> None:
        """Cancel the segments in flight."""
        for future in self._in_flight:
            future.cancel()


def _progress(stream: Stream, duration_s: float | None) -> FileProgress:
    time_s = stream.frames * stream.frame_s
    fraction = None if duration_s is None else min(1.0, time_s / duration_s)
    return FileProgress(frames=stream.frames, time_s=time_s, fraction=fraction)
