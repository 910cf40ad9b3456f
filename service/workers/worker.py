"""A worker: live sessions and segments of recordings, computed in one thread.

    take what has arrived -> compute one step -> send what there is to say -> again

A step is a batch of windows that are due, of live sessions first and else of one segment, so that
a live window waits for one step at most.
"""

from __future__ import annotations

import gc
import logging
import mmap
import os
import select
import socket
import sys
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

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
from service.protocol.faults import ProtocolError, internal_error
from service.stream.windows import MOST_WINDOWS, Due
from service.workers.messages import (
    Computed,
    Drop,
    End,
    Failed,
    Flush,
    Hello,
    LoadedModel,
    MessageReader,
    Open,
    Ping,
    Refused,
    Segment,
    Setup,
    Stepped,
    message_frame,
    slots,
)
from service.workers.session import LiveSession

logger = logging.getLogger(__name__)

LOOK_S = 0.25  # how often all sessions are asked whether they have something to say
_READ_BYTES = 1 << 16


def main() -> None:
    """Of a process; arguments: the inherited socket and memory file."""
    socket_fd, memory_fd = map(int, sys.argv[1:])
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s")

    def memory(size: int) -> mmap.mmap:
        os.truncate(memory_fd, size)
        return mmap.mmap(memory_fd, size)

    run(socket.socket(fileno=socket_fd), memory, own_process=True)


def run(
    service: socket.socket, memory: Callable[[int], mmap.mmap], own_process: bool = False
) -> None:
    """A worker's whole life at its end of the socket; ``memory`` makes what both share."""
    frames = MessageReader()
    try:
        data = service.recv(_READ_BYTES)
        while not (first := list(frames.take(data))):
            data = service.recv(_READ_BYTES)
            if not data:
                return
        setup = first[0][1]
        assert isinstance(setup, Setup)
        configure_torch_thread()
        try:
            model = setup.load(setup.model, setup.device)
            piano = setup.load(setup.piano, setup.device) if setup.piano else None
            worker = Worker(model, memory, piano)
        except Exception as error:
            logger.exception("the model %s cannot be loaded", setup.model)
            service.sendall(message_frame([Failed(f"{type(error).__name__}: {error}")]))
            return
        if own_process:
            gc.freeze()  # walking through what torch has imported would take 0.1 s
        service.sendall(message_frame([worker.hello]))
        arrivals = select.poll()
        arrivals.register(service, select.POLLIN)
        while True:
            if arrivals.poll(worker.patience_ms):
                if not (data := service.recv(_READ_BYTES)):
                    return
                for stream, content in frames.take(data):
                    worker.take(stream, content)
            if replies := worker.step():
                service.sendall(message_frame(replies))
    except OSError:
        return  # the service has ended
    finally:
        service.close()


class _Engine:
    """Runner of a model, and the number of windows that it computes in one step."""

    def __init__(self, model: EngineModel) -> None:
        self.runner = make_runner(model)
        on_cpu = device_of(model).type == "cpu"
        one_ms = window_ms(self.runner, time.thread_time if on_cpu else time.perf_counter)
        self.batch_windows = self.runner.batch_windows
        if on_cpu:
            self.batch_windows = max(1, min(self.batch_windows, int(MAX_STEP_MS / one_ms)))


@dataclass(slots=True)
class _Job:
    """A segment under way."""

    slot: int
    due: Due
    engine: _Engine
    features: FeatureStream
    done: int = 0  # windows, the refill included
    shape: tuple[int, ...] = ()


class Worker:
    """What a worker has to do, and one step of it at a time."""

    def __init__(
        self,
        model: EngineModel,
        memory: Callable[[int], mmap.mmap],
        piano: EngineModel | None = None,
    ) -> None:
        """Args:
        piano: computes segments of recordings of pianos.
        """
        self._engine = _Engine(model)
        self._piano = None if piano is None else _Engine(piano)
        self.config, self.runner = model.config, self._engine.runner
        self._batch_windows = self._engine.batch_windows
        described = None if piano is None else LoadedModel(piano.config, dict(piano.card))
        self.hello = Hello(model.config, dict(model.card), str(device_of(model)), described)
        self._settings = TrackerSettings.from_card(model.card)
        self._samples, self._probabilities = slots(self.hello.configs, memory)
        self._live: dict[int, LiveSession] = {}
        self._waiting: deque[LiveSession] = deque()  # first due first
        self._jobs: deque[_Job] = deque()
        self._replies: list[object] = []
        self._looked_s = 0.0

    @property
    def patience_ms(self) -> float | None:
        """How long it need not be asked, unless something arrives; None: for ever."""
        if self._waiting or self._jobs:
            return 0
        return 1000 * LOOK_S if self._live else None

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
            case Ping():
                self._replies.append(content)

    def step(self) -> list[object]:
        """Compute one batch, if anything is due; returns what there is to say."""
        if self._waiting:
            self._step_live()
        elif self._jobs:
            self._step_job(self._jobs[0])
        now_s = time.monotonic()
        if now_s >= self._looked_s + LOOK_S:
            self._looked_s = now_s
            for session in list(self._live.values()):
                self._say(session)
        elif all(isinstance(reply, Stepped) for reply in self._replies):
            return []  # counted with the next words, or look
        replies, self._replies = self._replies, []
        return replies

    # -- live sessions ----------------------------------------------------------------------------

    def _open(self, opening: Open) -> None:
        try:
            session = LiveSession(opening, self.config, self._settings)
            session.features = self.runner.open_stream(session.stream.positions)
        except ProtocolError as fault:
            self._replies.append(Refused(opening.stream, fault.code, fault.message))
            return
        except Exception:
            self._give_up(opening.stream, "a session cannot be opened")
            return
        self._live[session.number] = session
        self._say(session)

    def _tell(self, stream: int, what: Callable[[LiveSession], None]) -> None:
        """Tell a session, if it is still there; its windows may become due."""
        if (session := self._live.get(stream)) is None:
            return
        try:
            what(session)
        except Exception:
            logger.exception("a session cannot take what has come")
            self._fail(session)
            return
        if session.waiting:
            return
        if session.stream.due:
            session.waiting = True
            self._waiting.append(session)
        elif session.ending:
            self._say(session)

    def _step_live(self) -> None:
        """A batch of windows read at the same positions, each session's oldest first."""
        began_s = time.monotonic()
        batch: list[tuple[LiveSession, int]] = []
        rows = []
        positions: slice | None = None
        room = self._batch_windows
        for _ in range(len(self._waiting)):
            session = self._waiting[0]
            stream = session.stream
            if room <= 0 or positions not in (None, stream.positions):
                break
            self._waiting.popleft()
            session.waiting = False
            try:
                # One that is behind takes what room there is, unless others wait.
                due = stream.take(1 if self._waiting else min(room, MOST_WINDOWS))
                assert due is not None  # or it would not wait
                rows += self.runner.rows(session.features, due)
            except Exception:
                logger.exception("the front-end failed on a session")
                self._fail(session)
                continue
            positions = stream.positions
            room -= due.windows
            batch.append((session, due.windows))
        if not rows:
            return
        assert positions is not None
        try:
            probabilities = self.runner.predict(rows, positions)
        except Exception:
            logger.exception("the model failed on a batch of %d windows", len(rows))
            self._replies.append(Stepped("live", 0, 0.0))
            for session, _ in batch:
                self._fail(session)
            return
        self._replies.append(Stepped("live", len(rows), time.monotonic() - began_s))
        first = 0
        for session, count in batch:
            heard = probabilities[first : first + count]
            self._tell(session.number, partial(LiveSession.hear, probabilities=heard))
            self._say(session)
            first += count

    def _fail(self, session: LiveSession) -> None:
        """The fault is confined to this session, whose notes are still ended."""
        try:
            session.fail()
        except Exception:
            self._give_up(session.number, "a session cannot end its notes")
        else:
            self._say(session)

    def _say(self, session: LiveSession) -> None:
        if session.number not in self._live:
            return
        try:
            said = session.said(time.monotonic())
        except Exception:
            self._give_up(session.number, "a session cannot speak")
            return
        if said is not None:
            self._replies.append(said)
            if said.ended is not None:
                self._drop(said.stream)

    def _give_up(self, stream: int, why: str) -> None:
        """Of a session that cannot even say that it failed."""
        logger.exception(why)
        fault = internal_error()
        self._replies.append(Refused(stream, fault.code, fault.message))
        self._drop(stream)

    def _drop(self, stream: int) -> None:
        dropped = self._live.pop(stream, None)
        if dropped is not None and dropped.waiting:
            self._waiting.remove(dropped)

    # -- recordings -------------------------------------------------------------------------------

    def _start(self, asked: Segment) -> None:
        due = replace(asked.due, samples=self._samples[asked.slot, : asked.samples])
        engine = self._piano if asked.for_piano and self._piano else self._engine
        features = engine.runner.open_stream(due.positions)
        self._jobs.append(_Job(asked.slot, due, engine, features))

    def _step_job(self, job: _Job) -> None:
        """Some windows, or a single one if there are live sessions, which may have to wait."""
        began_s = time.monotonic()
        part = job.due.part(job.done, 1 if self._live else job.engine.batch_windows)
        try:
            found = compute(job.engine.runner, job.features, part)
        except Exception as error:
            logger.exception("the model failed on a recording")
            self._jobs.popleft()
            failed = Computed(job.slot, (), f"the model failed: {error}")
            self._replies += [Stepped("file", 0, 0.0), failed]
            return
        count = part.refill + part.windows
        self._replies.append(Stepped("file", count, time.monotonic() - began_s))
        if len(found):
            read = max(0, job.done - job.due.refill)
            room = self._probabilities[job.slot]
            room[read * found[0].size :][: found.size] = found.ravel()
            job.shape = (read + len(found), *found.shape[1:])
        job.done += count
        if job.done == job.due.refill + job.due.windows:
            self._jobs.popleft()
            self._replies.append(Computed(job.slot, job.shape, None))
