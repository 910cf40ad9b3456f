"""A worker: live sessions and segments of recordings, computed in one thread.

    take what has arrived -> compute one step -> send what there is to say -> again

A step is a batch of windows that are due, of live sessions first and else of one segment, so that
a live window waits for one step at most.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from model.transcriber import FeatureStream
from service.engine.runners import EngineModel, Runner, compute
from service.notes.tracker_settings import TrackerSettings
from service.protocol.faults import ProtocolError, internal_error
from service.protocol.options import AudioFormat, Encoding, StreamOptions
from service.stream.stream import Stream
from service.stream.windows import MOST_WINDOWS, Due
from service.workers.messages import (
    Computed,
    Drop,
    End,
    Flush,
    Measured,
    Open,
    Ping,
    Pong,
    Refused,
    Segment,
    Stepped,
    Trial,
    slot_values,
)
from service.workers.session import LiveSession

logger = logging.getLogger(__name__)

LOOK_S = 0.25
"""How often sessions without windows are asked whether they have something to say."""

_TRIAL_RATE_HZ = 48_000
_TRIAL_CHUNK_S = 0.1
_TRIAL_STREAMS = 2
_TRIAL_LEVEL = 0.05  # of the noise


@dataclass(slots=True, eq=False)
class _Live:
    session: LiveSession
    features: FeatureStream | None = None
    waiting: bool = False  # among those whose windows are due


@dataclass(slots=True)
class _Job:
    """A segment under way."""

    asked: Segment
    due: Due
    features: FeatureStream
    done: int = 0  # windows, the refill included
    shape: tuple[int, ...] = ()


class Worker:
    """What a worker has to do, and one step of it at a time."""

    def __init__(
        self,
        model: EngineModel,
        runner: Runner,
        batch_windows: int,
        memory: Callable[[], NDArray[np.float32]],
    ) -> None:
        """Args:
        batch_windows: computed at once, at most.
        memory: the slots, [SLOTS, values]; asked for once the first segment comes.
        """
        self.config, self.card, self.runner = model.config, model.card, runner
        self._batch_windows = batch_windows
        self._settings = TrackerSettings.from_card(model.card)
        self._memory = memory
        self._live: dict[int, _Live] = {}
        self._waiting: deque[_Live] = deque()  # in the order in which their windows became due
        self._jobs: deque[_Job] = deque()
        self._replies: list[object] = []
        self._looked_s = 0.0

    @property
    def busy(self) -> bool:
        return bool(self._waiting or self._jobs)

    @property
    def idle(self) -> bool:
        """Whether nothing is going on that could have something to say."""
        return not (self._live or self._jobs)

    def take(self, stream: int, content: object) -> None:
        """Audio of a stream, or a message of stream 0."""
        match content:
            case bytes():
                self._tell(stream, lambda session: session.feed(content))
            case Open():
                self._open(content)
            case Flush():
                self._tell(content.stream, lambda session: session.flush(content.id))
            case End():
                error = ProtocolError(*content.error) if content.error else None
                self._tell(content.stream, lambda session: session.end(content.reason, error))
            case Segment():
                self._start(content)
            case Drop():
                self._drop(content.stream)
            case Trial():
                self._replies.append(Measured(self._measure(content.seconds)))
            case Ping():
                self._replies.append(Pong())

    def step(self) -> list[object]:
        """Compute one batch, if anything is due; returns what there is to say."""
        if self._waiting:
            self._step_live()
        elif self._jobs:
            self._step_job(self._jobs[0])
        now_s = time.monotonic()
        if now_s >= self._looked_s + LOOK_S:
            self._looked_s = now_s
            for live in list(self._live.values()):
                self._say(live, now_s)
        elif all(isinstance(reply, Stepped) for reply in self._replies):
            return []  # counted with the next words, or look
        replies, self._replies = self._replies, []
        return replies

    # -- live sessions ----------------------------------------------------------------------------

    def _open(self, opening: Open) -> None:
        try:
            session = LiveSession(opening, self.config, self._settings)
        except ProtocolError as error:
            self._replies.append(Refused(opening.stream, error.code, error.message))
            return
        except Exception:
            logger.exception("a session cannot be opened")
            fault = internal_error()
            self._replies.append(Refused(opening.stream, fault.code, fault.message))
            return
        live = self._live[opening.stream] = _Live(session)
        self._say(live, time.monotonic())

    def _tell(self, stream: int, tell: Callable[[LiveSession], None]) -> None:
        if (live := self._live.get(stream)) is None:
            return
        try:
            tell(live.session)
        except Exception:
            logger.exception("a session cannot take what has come")
            self._fail(live)
        else:
            self._queue(live)

    def _queue(self, live: _Live) -> None:
        if live.waiting:
            return
        if live.session.stream.due:
            live.waiting = True
            self._waiting.append(live)
        elif live.session.ending:
            self._say(live, time.monotonic())

    def _step_live(self) -> None:
        """A batch of windows read at the same positions, each session's oldest first."""
        began_s = time.monotonic()
        batch: list[tuple[_Live, int]] = []
        rows = []
        positions: slice | None = None
        room = self._batch_windows
        for _ in range(len(self._waiting)):
            live = self._waiting[0]
            stream = live.session.stream
            if room <= 0 or positions not in (None, stream.positions):
                break
            self._waiting.popleft()
            live.waiting = False
            try:
                # One that is behind takes what room there is, unless others wait.
                due = stream.take(1 if self._waiting else min(room, MOST_WINDOWS))
                assert due is not None  # or it would not wait
                if live.features is None:
                    live.features = self.runner.open_stream(stream.positions)
                rows += self.runner.rows(live.features, due)
            except Exception:
                logger.exception("the front-end failed on a session")
                self._fail(live)
                continue
            positions = stream.positions
            room -= due.windows
            batch.append((live, due.windows))
        if not rows:
            return
        assert positions is not None
        try:
            probabilities = self.runner.predict(rows, positions)
        except Exception:
            logger.exception("the model failed on a batch of %d windows", len(rows))
            self._replies.append(Stepped("live", 0, 0.0))
            for live, _ in batch:
                self._fail(live)
            return
        self._replies.append(Stepped("live", len(rows), time.monotonic() - began_s))
        first = 0
        for live, count in batch:
            self._hear(live, probabilities[first : first + count])
            first += count

    def _hear(self, live: _Live, probabilities: NDArray[np.float32]) -> None:
        try:
            live.session.hear(probabilities)
        except Exception:
            logger.exception("tracking failed on a session")
            self._fail(live)
            return
        self._say(live, time.monotonic())
        self._queue(live)

    def _fail(self, live: _Live) -> None:
        """The fault is confined to this session, whose notes are still ended."""
        try:
            live.session.fail()
        except Exception:
            self._give_up(live)
        else:
            self._say(live, time.monotonic())

    def _say(self, live: _Live, now_s: float) -> None:
        try:
            said = live.session.said(now_s)
        except Exception:
            self._give_up(live)
            return
        if said is not None:
            self._replies.append(said)
            if said.ended is not None:
                self._drop(said.stream)

    def _give_up(self, live: _Live) -> None:
        """Of a session that cannot even say that it failed."""
        logger.exception("a session cannot end its notes")
        fault = internal_error()
        self._replies.append(Refused(live.session.number, fault.code, fault.message))
        self._drop(live.session.number)

    def _drop(self, stream: int) -> None:
        dropped = self._live.pop(stream, None)
        if dropped is not None and dropped.waiting:
            self._waiting.remove(dropped)

    # -- recordings -------------------------------------------------------------------------------

    def _start(self, asked: Segment) -> None:
        features = self.runner.open_stream(asked.positions)
        samples = self._memory()[asked.slot, : asked.samples].copy()
        due = Due(
            samples, asked.windows, asked.new_hops, asked.positions, asked.refill, asked.shifts
        )
        self._jobs.append(_Job(asked, due, features))

    def _step_job(self, job: _Job) -> None:
        """Some windows, or a single one if there are live sessions, which may have to wait."""
        began_s = time.monotonic()
        part = job.due.part(job.done, 1 if self._live else self._batch_windows)
        try:
            found = compute(self.runner, job.features, part)
        except Exception as error:
            logger.exception("the model failed on a recording")
            self._jobs.popleft()
            failed = Computed(job.asked.number, (), f"the model failed: {error}")
            self._replies += [Stepped("file", 0, 0.0), failed]
            return
        count = part.refill + part.windows
        self._replies.append(Stepped("file", count, time.monotonic() - began_s))
        if len(found):
            read = max(0, job.done - job.due.refill)
            room = self._memory()[job.asked.slot, -slot_values(self.config)[1] :]
            room[read * found[0].size :][: found.size] = found.ravel()
            job.shape = (read + len(found), *found.shape[1:])
        job.done += count
        if job.done == job.due.refill + job.due.windows:
            self._jobs.popleft()
            self._replies.append(Computed(job.asked.number, job.shape, None))

    # -- measuring --------------------------------------------------------------------------------

    def _measure(self, seconds: float) -> float:
        """Windows per second of default streams that come as fast as they are taken."""
        audio = AudioFormat(encoding=Encoding.PCM_S16LE, sample_rate_hz=_TRIAL_RATE_HZ)
        noise = np.random.default_rng(0).standard_normal(int(_TRIAL_RATE_HZ * _TRIAL_CHUNK_S))
        chunk = (32767 * _TRIAL_LEVEL * noise).astype("<i2").tobytes()
        streams = [
            Stream(self.config, self._settings, audio, StreamOptions())
            for _ in range(_TRIAL_STREAMS)
        ]
        features = [self.runner.open_stream(stream.positions) for stream in streams]
        windows, began_s = 0, time.monotonic()
        while time.monotonic() < began_s + seconds:
            for stream, state in zip(streams, features, strict=True):
                stream.feed(chunk)
                while (due := stream.take(1)) is not None:
                    rows = self.runner.rows(state, due)
                    stream.hear(self.runner.predict(rows, stream.positions))
                    windows += 1
        return windows / (time.monotonic() - began_s)
