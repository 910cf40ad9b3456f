"""Worker processes: the network computed beside the service, not within its interpreter.

Threads of one interpreter take turns at its lock. A window is some hundred small operations, each
of which gives the lock back and takes it again; next to an event loop that serves sockets and
tracks notes, two cores do the work of little more than one. So where a CPU has several cores, each
worker thread of the engine hands its batches to a process of its own and waits.

A stream stays with its process, which keeps its state. If a process ends, another one takes its
place and computes the batch under way from whole windows, as for new streams. If it does not start,
it is tried again after pauses; meanwhile its streams fail and new ones go to other workers.
"""

import logging
import math
import mmap
import os
import pickle
import subprocess
import sys
import time
import weakref
from collections import deque
from collections.abc import Sequence
from multiprocessing import Pipe

import numpy as np

from model.config import FRAMES, PITCHES, WINDOW
from service.engine.batching import EngineError, Part, Probabilities, RequestStream
from service.engine.worker import Answer, Batch, Task, values_of

logger = logging.getLogger(__name__)

AVAILABLE = hasattr(os, "memfd_create")  # Linux
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 60.0  # between starts that fail
# Ctrl-C and a system's end are sent to all of a group: the service decides.
_MAIN = """
import signal
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, signal.SIG_IGN)
from service.engine.worker import main
main()
"""


class WorkerProcess:
    """A process with a copy of the model; for one thread, except ``kill``."""

    down: bool
    """Whether the last attempt to start it failed."""

    def __init__(self, model: bytes, heads: int, batch_windows: int) -> None:
        """Returns when it has loaded the model, a pickled transcriber with so many heads.

        Raises EngineError or OSError if it does not start.
        """
        self._model = model
        self._batch_windows = batch_windows
        self._values = batch_windows * (WINDOW + heads * FRAMES * PITCHES)
        self._killed = False
        self._pause_s = FIRST_PAUSE_S
        self._next_start_s = 0.0
        self._start()

    def _start(self) -> None:
        """Another attempt is due after a pause if this one raises."""
        try:
            self._launch()
        except Exception:
            self.down = True
            self._next_start_s = time.monotonic() + self._pause_s
            self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S)
            raise
        self.down = False
        self._pause_s = FIRST_PAUSE_S

    def _launch(self) -> None:
        self._known: set[int] = set()  # numbers of the streams that it keeps
        self._forget: deque[int] = deque()
        self._connection, other = Pipe()
        memory = os.memfd_create("rse-engine")
        try:
            os.ftruncate(memory, 4 * self._values)
            values = np.frombuffer(mmap.mmap(memory, 0), np.float32)
            self._windows, self._probabilities = values_of(values, self._batch_windows)
            files = (other.fileno(), memory)
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", _MAIN, *map(str, files), str(self._batch_windows)],
                env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"},
                stdin=subprocess.DEVNULL,
                pass_fds=files,
            )
        finally:
            other.close()
            os.close(memory)
        if self._killed:  # meanwhile
            self._process.kill()
        try:
            self._connection.send_bytes(self._model)
            self._connection.recv()
        except (EOFError, OSError) as error:
            self._process.kill()
            raise EngineError("a worker process did not start") from error

    def revive(self) -> None:
        """Starts a process that is down, once the pause after the last attempt is over."""
        if not self.down or self._killed or time.monotonic() < self._next_start_s:
            return
        try:
            self._start()
        except Exception as error:
            pause_s = self._next_start_s - time.monotonic()
            logger.error("no worker process: %s; next attempt in %.0f s", error, pause_s)

    def compute(self, parts: Sequence[Part]) -> tuple[list[str | None], Probabilities]:
        """The parts' errors, and the probabilities of those without one, in their order.

        Raises EngineError if the batch failed as a whole or ended a process twice, or if there is
        no process.
        """
        if self.down:
            raise EngineError("a worker process did not start")
        try:
            answer = self._ask(parts)
        except (EOFError, OSError):
            self._process.kill()  # if there is more to it
            if not self._killed:
                logger.error("a worker process ended (%d): starting another", self._process.wait())
            self._connection.close()
            answer = self._retry(parts)
        if isinstance(answer, str):
            raise EngineError(answer)
        shape, errors = answer
        return errors, self._probabilities[: math.prod(shape)].reshape(shape).copy()

    def _retry(self, parts: Sequence[Part]) -> Answer | str:
        try:
            if not self._killed:
                self._start()
            return self._ask(parts)
        except (EOFError, OSError) as error:
            raise EngineError("a worker process ended") from error

    def _ask(self, parts: Sequence[Part]) -> Answer | str:
        try:
            # `send` would prepare a pickler of its own each time.
            self._connection.send_bytes(pickle.dumps(self._batch(parts)))
            answer: Answer | str = self._connection.recv()
        except (EOFError, OSError):
            raise
        except Exception:
            self._process.kill()  # its streams may have missed windows, and its answer waits
            raise
        return answer

    def _batch(self, parts: Sequence[Part]) -> Batch:
        """The parts, whose windows are now in the shared memory."""
        tasks: list[Task] = []
        first = 0
        for part in parts:
            windows = part.windows
            self._windows[first : first + len(windows)] = windows
            first += len(windows)
            number = self._number(part.request.stream)
            request = part.request
            tasks.append((number, len(windows), part.unread, request.new_hops, request.shift))
        forget = [self._forget.popleft() for _ in range(len(self._forget))]
        positions = parts[0].request.stream.positions
        return tasks, positions.start, positions.stop, forget

    def kill(self) -> None:
        """From any thread; a batch under way fails."""
        self._killed = True
        self._process.kill()

    def wait(self) -> None:
        """Until a killed process has ended."""
        self._process.wait()

    def forget(self, stream: RequestStream) -> None:
        """The stream missed a window: what the process keeps of it is of no use."""
        self._forget.append(stream.number)

    def _number(self, stream: RequestStream) -> int:
        if stream.number not in self._known:
            self._known.add(stream.number)
            weakref.finalize(stream, self._end, stream.number).atexit = False
        return stream.number

    def _end(self, number: int) -> None:
        self._known.discard(number)
        self._forget.append(number)
