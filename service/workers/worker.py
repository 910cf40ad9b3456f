"""A worker: computes live sessions and segments of recordings in one thread.

    handle the messages that have arrived -> compute one step -> send the output -> repeat

A step is one batch of pending windows. Live sessions have priority over segments, so a live window
waits for at most one step of a segment.
"""

from __future__ import annotations

import gc
import logging
import selectors
import sys
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection

from model.transcriber import FeatureStream
from service.engine.cuda_graphs import MAX_STEP_MS
from service.engine.runners import (
    EngineModel,
    compute,
    configure_torch_thread,
    device_of,
    make_runner,
    window_ms,
)
from service.notes.tracker_settings import TrackerSettings
from service.protocol.errors import ProtocolError, internal_error
from service.stream.windows import MAX_WINDOWS_PER_BATCH, PendingWindows
from service.workers import messages
from service.workers.session import LiveSession

logger = logging.getLogger(__name__)

POLL_INTERVAL_S = 0.25  # interval at which all sessions are polled for output


def main() -> None:
    """Run a worker process. The argument is the file descriptor of its socket."""
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    run(Connection(int(sys.argv[1])), own_process=True)


def run(service: Connection, own_process: bool = False) -> None:
    """Load the model, and handle messages until the service closes the connection."""
    try:
        config = service.recv()
        assert isinstance(config, messages.WorkerConfig)
        configure_torch_thread()
        try:
            model = config.load(config.model, config.device)
            worker = Worker(model)
        except Exception as error:
            logger.exception("cannot load the model %s", config.model)
            service.send(messages.ModelLoadFailed(f"{type(error).__name__}: {error}"))
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


@dataclass(slots=True)
class _Job:
    """A segment in progress."""

    number: int
    due: PendingWindows
    features: FeatureStream
    done: int = 0  # number of computed windows, including the pre-roll


class Worker:
    """Live sessions and segments of one worker."""

    def __init__(self, model: EngineModel) -> None:
        self.config, self.runner = model.config, make_runner(model)
        self._batch_windows = self.runner.batch_windows  # maximum number of windows per step
        on_cpu = device_of(model).type == "cpu"
        one_ms = window_ms(self.runner, time.thread_time if on_cpu else time.perf_counter)
        if on_cpu:
            self._batch_windows = max(1, min(self._batch_windows, int(MAX_STEP_MS / one_ms)))
        self.loaded = messages.ModelLoaded(
            config=model.config,
            card=dict(model.card),
            device=str(device_of(model)),
            window_s=one_ms / 1000,
        )
        self._settings = TrackerSettings.from_card(model.card)
        self._sessions: dict[int, LiveSession] = {}
        self._queue: deque[LiveSession] = deque()  # sessions with pending windows, oldest first
        self._jobs: deque[_Job] = deque()
        self._replies: list[object] = []
        self._polled_s = 0.0

    @property
    def poll_timeout_s(self) -> float | None:
        """Maximum time to wait for a message in s. None means to wait until one arrives."""
        if self._queue or self._jobs:
            return 0
        return POLL_INTERVAL_S if self._sessions else None

    def handle(self, message: object) -> None:
        match message:
            case messages.Audio():
                now_s = time.monotonic()
                self._apply(message.stream, lambda session: session.feed(message.data, now_s))
            case messages.OpenSession():
                self._open(message)
            case messages.Flush():
                self._apply(message.stream, lambda session: session.flush(message.id))
            case messages.EndAudio():
                error = ProtocolError(*message.error) if message.error else None
                self._apply(message.stream, lambda session: session.end(message.reason, error))
            case messages.Segment():
                self._start(message)
            case messages.CloseSession():
                self._close(message.stream)
            case messages.Ping():
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
        elif all(isinstance(reply, messages.BatchTiming) for reply in self._replies):
            return []  # timings are not urgent: send them with the next output or at the next poll
        replies, self._replies = self._replies, []
        return replies

    # -- live sessions ----------------------------------------------------------------------------

    def _open(self, opening: messages.OpenSession) -> None:
        try:
            session = LiveSession(opening, self.config, self._settings)
            session.features = self.runner.open_stream(session.stream.positions)
        except ProtocolError as error:
            self._replies.append(messages.SessionFailed(opening.stream, error.code, error.message))
            return
        except Exception:
            self._abort_session(opening.stream, "cannot open a session")
            return
        self._sessions[session.number] = session
        self._collect_output(session)

    def _apply(self, stream: int, action: Callable[[LiveSession], None]) -> None:
        """Apply an action to a session, if it is open, and queue its pending windows."""
        if (session := self._sessions.get(stream)) is None:
            return
        try:
            action(session)
        except Exception:
            logger.exception("a session failed on its input")
            self._fail(session)
            return
        if session.is_queued:
            return
        if session.stream.pending_windows:
            session.is_queued = True
            self._queue.append(session)
        elif session.ending:
            self._collect_output(session)

    def _step_live(self) -> None:
        """Compute one batch of windows, which must all be read at the same positions. Start with
        the sessions that have waited longest."""
        started_s = time.monotonic()
        batch: list[tuple[LiveSession, int]] = []
        rows = []
        positions: slice | None = None
        free = self._batch_windows
        for _ in range(len(self._queue)):
            session = self._queue[0]
            stream = session.stream
            wide = session.is_catching_up(started_s)
            required = stream.wide_positions if wide else stream.positions
            if free <= 0 or positions not in (None, required):
                break
            self._queue.popleft()
            session.is_queued = False
            try:
                # If no other session waits, compute several windows of a session that is behind.
                count = 1 if self._queue else min(free, MAX_WINDOWS_PER_BATCH)
                due = stream.next_windows(count, wide=wide)
                assert due is not None  # a queued session has pending windows
                rows += self.runner.rows(session.features, due)
            except Exception:
                logger.exception("the front-end failed on a session")
                self._fail(session)
                continue
            positions = due.positions
            free -= due.windows
            batch.append((session, due.windows))
        if not rows:
            return
        assert positions is not None
        try:
            probabilities = self.runner.predict(rows, positions)
        except Exception:
            logger.exception("the model failed on a batch of %d windows", len(rows))
            self._replies.append(messages.BatchTiming("live", 0, 0.0, 0.0))
            for session, _ in batch:
                self._fail(session)
            return
        model_s = time.monotonic() - started_s
        first = 0
        for session, count in batch:
            predictions = probabilities[first : first + count]
            process = partial(LiveSession.process_predictions, probabilities=predictions)
            self._apply(session.number, process)
            self._collect_output(session)
            first += count
        total_s = time.monotonic() - started_s
        self._replies.append(messages.BatchTiming("live", len(rows), model_s, total_s))

    def _fail(self, session: LiveSession) -> None:
        """End a session after an internal error, with a note_off for each sounding note."""
        try:
            session.fail()
        except Exception:
            self._abort_session(session.number, "a session failed to end its notes")
        else:
            self._collect_output(session)

    def _collect_output(self, session: LiveSession) -> None:
        if session.number not in self._sessions:
            return
        try:
            output = session.collect_output(time.monotonic())
        except Exception:
            self._abort_session(session.number, "a session failed to produce output")
            return
        if output is not None:
            self._replies.append(output)
            if output.final_state is not None:
                self._close(output.stream)

    def _abort_session(self, stream: int, event: str) -> None:
        """Discard a session that cannot send its own error. Log the exception with ``event``."""
        logger.exception(event)
        error = internal_error()
        self._replies.append(messages.SessionFailed(stream, error.code, error.message))
        self._close(stream)

    def _close(self, stream: int) -> None:
        session = self._sessions.pop(stream, None)
        if session is not None and session.is_queued:
            self._queue.remove(session)

    # -- recordings -------------------------------------------------------------------------------

    def _start(self, segment: messages.Segment) -> None:
        features = self.runner.open_stream(segment.due.positions)
        self._jobs.append(_Job(segment.number, segment.due, features))

    def _step_job(self, job: _Job) -> None:
        """Compute a batch of a segment, or only one window if there are live sessions."""
        started_s = time.monotonic()
        part = job.due.subset(job.done, 1 if self._sessions else self._batch_windows)
        try:
            probabilities = compute(self.runner, job.features, part)
        except Exception as error:
            logger.exception("the model failed on a recording")
            self._jobs.popleft()
            failed = messages.SegmentPart(job.number, None, True, f"the model failed: {error}")
            self._replies += [messages.BatchTiming("file", 0, 0.0, 0.0), failed]
            return
        count = part.preroll + part.windows
        elapsed_s = time.monotonic() - started_s
        self._replies.append(messages.BatchTiming("file", count, elapsed_s, elapsed_s))
        job.done += count
        is_last = job.done == job.due.preroll + job.due.windows
        if is_last:
            self._jobs.popleft()
        if len(probabilities):
            self._replies.append(messages.SegmentPart(job.number, probabilities, is_last))
