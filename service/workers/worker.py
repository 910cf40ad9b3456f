"""A worker: owns live sessions, and computes them and segments of recordings in one thread.

    handle the messages that have arrived -> compute one step -> send the output -> repeat

A step is one batch of pending windows. Live sessions have priority over segments, so a live window
waits for at most one step of a segment. Messages are pickled, and framed by
``multiprocessing.connection.Connection``. Probabilities of segments are in shared memory.
"""

from __future__ import annotations

import gc
import logging
import os
import selectors
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any, NamedTuple

from model.config import ModelConfig
from service.engine.load import WorkerConfig
from service.engine.segment_memory import SegmentMemory
from service.notes.tracker_settings import TrackerSettings
from service.ops import logs
from service.protocol.errors import ProtocolError, internal_error
from service.protocol.server_messages import DoneReason
from service.stream.session import LiveSession, OpenSession, SessionOutput
from service.stream.windows import (
    MAX_WINDOWS_PER_BATCH,
    BatchTiming,
    EngineError,
    PendingWindows,
)

if TYPE_CHECKING:
    from model.transcriber import FeatureStream  # imports torch

logger = logging.getLogger(__name__)

POLL_INTERVAL_S = 0.25  # interval at which all sessions are polled for output

# -- messages to a worker, in addition to WorkerConfig and OpenSession ----------------------------


class Audio(NamedTuple):
    """The next PCM bytes of a session, and the event after them, if there is one."""

    session: int
    data: bytes
    flush_id: str | None = None
    end: tuple[DoneReason, ProtocolError | None] | None = None  # end of the audio


class CloseSession(NamedTuple):
    """Discard a session whose output is no longer needed."""

    session: int


class Segment(NamedTuple):
    """Compute a segment of a recording, and store its probabilities in a slot of SegmentMemory."""

    slot: int
    due: PendingWindows


class Ping(NamedTuple):
    """Heartbeat. The worker replies with the same message."""


# -- messages from a worker, in addition to SessionOutput and BatchTiming -------------------------


class ModelLoaded(NamedTuple):
    """The worker is ready. ``window_s``: time in s per window of a full batch in the warm-up."""

    config: ModelConfig
    card: Mapping[str, Any]
    device: str
    window_s: float


class SegmentResult(NamedTuple):
    """A slot has all probabilities of its segment, or the segment has failed."""

    slot: int
    error: EngineError | None = None


def main() -> None:
    """Run a worker process. The arguments are the file descriptors of its socket and its memory."""
    run(Connection(int(sys.argv[1])), int(sys.argv[2]), own_process=True)


def run(service: Connection, memory: int, own_process: bool = False) -> None:
    """Load the model, and handle messages until the service closes the connection."""
    try:
        config = service.recv()
        if own_process:
            logs.configure(config.log_format)
        try:
            worker = Worker(config, memory)
        except Exception as error:
            logger.exception("cannot load the model %s", config.model)
            service.send(EngineError(f"{type(error).__name__}: {error}"))
            return
        if own_process:
            gc.freeze()  # otherwise each garbage collection would spend 0.1 s on torch's objects
        service.send(worker.loaded)
        # Connection.poll would create a selector for each call.
        with selectors.DefaultSelector() as selector:
            selector.register(service, selectors.EVENT_READ)
            while True:
                timeout_s = worker.poll_timeout_s
                while selector.select(timeout_s):
                    worker.handle(service.recv())
                    timeout_s = 0
                if replies := worker.step():
                    service.send(replies)
    except (EOFError, OSError):
        return  # the service has exited or has stopped this worker
    finally:
        service.close()
        os.close(memory)


@dataclass(slots=True)
class _Job:
    """A segment in progress. ``done``: number of computed windows, including the pre-roll."""

    segment: Segment
    features: FeatureStream | None = None
    done: int = 0


class Worker:
    """Live sessions and segments of one worker."""

    def __init__(self, config: WorkerConfig, memory: int) -> None:
        """Load the model and measure the time of a window."""
        from service.engine import runners  # imports torch, which takes a second

        runners.configure_torch_thread()
        model = config.load(config.model, config.device)
        self._runner = runners.make_runner(model)
        self.loaded = ModelLoaded(
            config=model.config,
            card=dict(model.card),
            device=str(runners.device_of(model)),
            window_s=runners.calibrate(self._runner, runners.device_of(model)),
        )
        self._settings = TrackerSettings.from_card(model.card)
        self._memory = SegmentMemory(memory, model.config)
        self._sessions: dict[int, LiveSession] = {}
        self._queue: deque[LiveSession] = deque()  # with pending windows, longest wait first
        self._jobs: deque[_Job] = deque()
        self._replies: list[object] = []
        self._polled_s = 0.0

    @property
    def poll_timeout_s(self) -> float | None:
        """Maximum time in s to wait for a message. None means to wait until one arrives."""
        if self._queue or self._jobs:
            return 0
        return POLL_INTERVAL_S if self._sessions else None

    def handle(self, message: object) -> None:
        match message:
            case Audio():
                if (session := self._sessions.get(message.session)) is not None:
                    self._apply(session, partial(self._receive, session, message))
            case OpenSession():
                self._open(message)
            case CloseSession():
                self._close(message.session)
            case Segment():
                self._jobs.append(_Job(message))
            case Ping():
                self._replies.append(message)

    def step(self) -> list[object]:
        """Compute one batch if windows are pending. Return the messages to the service."""
        if self._queue:
            self._step_live()
        elif self._jobs:
            self._step_job(self._jobs[0])
        now_s = time.monotonic()
        if now_s >= self._polled_s + POLL_INTERVAL_S:
            self._polled_s = now_s
            for session in list(self._sessions.values()):
                self._collect_output(session)
        elif all(isinstance(reply, BatchTiming) for reply in self._replies):
            return []  # timings are not urgent: send them with the next output or at the next poll
        replies, self._replies = self._replies, []
        return replies

    # -- live sessions ----------------------------------------------------------------------------

    def _open(self, opening: OpenSession) -> None:
        try:
            session = LiveSession(opening, self.loaded.config, self._settings)
            session.features = self._runner.open_stream()
        except ProtocolError as error:
            self._replies.append(SessionOutput(opening.number, error=error))
        except Exception:
            self._abort(opening.number, "cannot open a session")
        else:
            self._sessions[session.number] = session
            self._collect_output(session)

    def _receive(self, session: LiveSession, audio: Audio) -> None:
        if audio.data:
            session.feed(audio.data, time.monotonic())
        if audio.flush_id is not None:
            session.flush(audio.flush_id)
        if audio.end is not None:
            session.end(*audio.end)

    def _apply(self, session: LiveSession, action: Callable[[], None]) -> None:
        """Pass audio or predictions to a session, and queue its pending windows."""
        try:
            action()
        except Exception:
            self._abort(session.number, "a session failed on its input")
            return
        if session.is_queued:
            return
        if session.stream.pending_windows:
            session.is_queued = True
            self._queue.append(session)
        elif session.ending:
            self._collect_output(session)

    def _step_live(self) -> None:
        """Compute one batch of windows."""
        started_s = time.monotonic()
        sessions, rows, positions = self._next_batch(started_s)
        if not rows:
            return
        is_busy = bool(self._queue) or len(rows) >= self._runner.batch_windows
        try:
            probabilities = self._runner.predict(rows, positions)
        except Exception:
            self._replies.append(BatchTiming("live", 0, 0.0, 0.0))
            for session, _ in sessions:
                self._abort(session.number, f"the model failed on a batch: windows={len(rows)}")
            return
        model_s = time.monotonic() - started_s
        for session, windows in sessions:
            process = partial(session.process_predictions, probabilities[:windows])
            probabilities = probabilities[windows:]
            self._apply(session, process)
            self._collect_output(session)
        total_s = time.monotonic() - started_s
        self._replies.append(BatchTiming("live", len(rows), model_s, total_s, is_busy))

    def _next_batch(self, now_s: float) -> tuple[list[tuple[LiveSession, int]], list[Any], slice]:
        """Take the next windows of the sessions that have waited longest. All of them must use the
        same positions. Return the sessions with their numbers of windows, the runner's rows, and
        the positions."""
        batch: list[tuple[LiveSession, int]] = []
        rows: list[Any] = []
        positions = slice(0)
        for _ in range(len(self._queue)):
            session, free = self._queue[0], self._runner.batch_windows - len(rows)
            stream = session.stream
            wide = session.is_catching_up(now_s)
            required = stream.wide_positions if wide else stream.positions
            if free <= 0 or (rows and positions != required):
                break
            self._queue.popleft()
            session.is_queued = False
            try:
                # If no other session waits, compute several windows of a session that is behind.
                count = 1 if self._queue else min(free, MAX_WINDOWS_PER_BATCH)
                due = stream.next_windows(count, wide=wide)
                assert due is not None  # a queued session has pending windows
                rows += self._runner.rows(session.features, due)
            except Exception:
                self._abort(session.number, "the front-end failed on a session")
                continue
            positions = due.positions
            batch.append((session, due.windows))
        return batch, rows, positions

    def _collect_output(self, session: LiveSession) -> None:
        if session.number not in self._sessions:
            return
        try:
            output = session.collect_output(time.monotonic())
        except Exception:
            self._abort(session.number, "a session failed to produce output")
            return
        if output is not None:
            self._replies.append(output)
            if output.final_state is not None:
                self._close(output.number)

    def _abort(self, number: int, event: str) -> None:
        """End a session with an internal error. Log the exception with ``event``."""
        logger.exception(event)
        self._replies.append(SessionOutput(number, error=internal_error()))
        self._close(number)

    def _close(self, number: int) -> None:
        session = self._sessions.pop(number, None)
        if session is not None and session.is_queued:
            self._queue.remove(session)

    # -- recordings -------------------------------------------------------------------------------

    def _step_job(self, job: _Job) -> None:
        """Compute a batch of a segment, or only one window if there are live sessions."""
        started_s = time.monotonic()
        slot, due = job.segment
        part = due.subset(job.done, 1 if self._sessions else self._runner.batch_windows)
        count = part.preroll + part.windows
        error, stop = None, job.done + count - due.preroll
        try:
            job.features = job.features or self._runner.open_stream()
            if rows := self._runner.rows(job.features, part)[part.preroll :]:
                stored = self._memory.probabilities(slot, due)[stop - len(rows) : stop]
                stored[:] = self._runner.predict(rows, part.positions).reshape(stored.shape)
        except Exception as failure:
            logger.exception("the model failed on a recording")
            error, count = EngineError(f"the model failed: {failure}"), 0
        elapsed_s = time.monotonic() - started_s if count else 0.0
        self._replies.append(BatchTiming("file", count, elapsed_s, elapsed_s))
        job.done += count
        if error or stop == due.windows:
            self._jobs.popleft()
            self._replies.append(SegmentResult(slot, error))
