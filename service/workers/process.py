"""Start a worker, as a process or as a thread of this one, and run its loop.

Threads of one interpreter take turns at its lock: a window is some hundred small operations, each
of which gives the lock back and takes it again. So if a CPU has several cores, or a GPU computes
beside an event loop, workers are processes. A worker never outlives the service: it ends when its
socket is closed.
"""

from __future__ import annotations

import gc
import logging
import mmap
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from service.workers.messages import SLOTS, Failed, Frames, Hello, Setup, message_frame

PROCESSES = hasattr(os, "memfd_create")  # Linux
LONGEST_STEP_MS = 25.0  # a live window waits for one step at most
_READ_BYTES = 1 << 20
_MAIN = "from service.workers.process import main; main()"


class Started(Protocol):
    """A worker that has been started.

    Attributes:
        socket: the service's end.
        memory: maps the slots.
    """

    socket: socket.socket

    def memory(self, size: int) -> mmap.mmap: ...

    def kill(self) -> None:
        """End it at once, if that can be done."""
        ...

    def wait(self) -> None:
        """Wait for it to exit."""
        ...


class WorkerProcess:
    """A worker in a process of its own."""

    def __init__(self) -> None:
        self.socket, other = socket.socketpair()
        self._memory = os.fdopen(os.memfd_create("rse-worker"), "wb", buffering=0)
        files = (other.fileno(), self._memory.fileno())
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", _MAIN, *map(str, files)],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"},
            stdin=subprocess.DEVNULL,
            pass_fds=files,
        )
        other.close()

    def memory(self, size: int) -> mmap.mmap:
        self._memory.truncate(size)
        return mmap.mmap(self._memory.fileno(), size)

    def kill(self) -> None:
        self._process.kill()

    def wait(self) -> None:
        self._process.wait()
        self._memory.close()


class WorkerThread:
    """A worker in a thread of this process, for a single core or a system without memory files."""

    def __init__(self) -> None:
        self.socket, other = socket.socketpair()
        self._shared: mmap.mmap | None = None
        self._thread = threading.Thread(
            target=run, args=[other, lambda: self._shared], name="worker", daemon=True
        )
        self._thread.start()

    def memory(self, size: int) -> mmap.mmap:
        self._shared = mmap.mmap(-1, size)
        return self._shared

    def kill(self) -> None:
        """It ends after its step."""

    def wait(self) -> None:
        self._thread.join(LONGEST_WAIT_S)


LONGEST_WAIT_S = 5.0


def main() -> None:
    """Of a process; arguments: the inherited socket and memory file."""
    # Ctrl-C and a system's end are sent to all of a group: the service decides.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    socket_fd, memory_fd = map(int, sys.argv[1:])
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    run(socket.socket(fileno=socket_fd), lambda: mmap.mmap(memory_fd, 0), own_process=True)


def run(
    service: socket.socket, memory: Callable[[], mmap.mmap | None], own_process: bool = False
) -> None:
    """A worker's whole life on its end of the socket."""
    from service.engine.runners import device_of, runner_of, window_ms  # with torch
    from service.engine.threads import prepare_thread
    from service.workers.worker import LOOK_S, Worker

    frames = Frames()
    try:
        data = service.recv(_READ_BYTES)
        while not (first := list(frames.take(data))):
            data = service.recv(_READ_BYTES)
            if not data:
                return
        setup = first[0][1]
        assert isinstance(setup, Setup)
        prepare_thread(setup.threads)
        try:
            model = setup.load(setup.model, setup.device)
            runner = runner_of(model)
            on_cpu = device_of(model).type == "cpu"
            clock = time.thread_time if on_cpu else time.perf_counter
            one_ms = window_ms(runner, clock)
        except Exception as error:
            logging.getLogger(__name__).exception("the model %s cannot be loaded", setup.model)
            service.sendall(message_frame([Failed(f"{type(error).__name__}: {error}")]))
            return
        batch_windows = runner.batch_windows
        if on_cpu:
            batch_windows = max(1, min(batch_windows, int(LONGEST_STEP_MS / one_ms)))

        mapped: list[NDArray[np.float32]] = []

        def slots() -> NDArray[np.float32]:
            if not mapped:
                shared = memory()
                assert shared is not None
                mapped.append(np.frombuffer(shared, np.float32).reshape(SLOTS, -1))
            return mapped[0]

        worker = Worker(model, runner, batch_windows, slots)
        if own_process:
            gc.freeze()  # walking through what torch has imported would take 0.1 s
        hello = Hello(
            config=model.config,
            card=dict(model.card),
            device=str(device_of(model)),
            window_ms=one_ms,
        )
        service.sendall(message_frame([hello]))
        arrivals = select.poll()
        arrivals.register(service, select.POLLIN)
        while True:
            # Not before it must be asked again; at once if there is work.
            if arrivals.poll(0 if worker.busy else None if worker.idle else 1000 * LOOK_S):
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
