"""Starts a worker: a process, or a thread of this one.

Threads of one interpreter take turns at its lock: a window is some hundred small operations, each
of which gives the lock back and takes it again. So if a CPU has several cores, or a GPU computes
beside an event loop, workers are processes. A worker never outlives the service: it ends when its
socket is closed.
"""

import mmap
import os
import socket
import subprocess
import sys
import threading

PROCESSES = hasattr(os, "memfd_create")  # Linux
_LONGEST_WAIT_S = 5.0  # for a thread
# Ctrl-C and a system's end are sent to all of a group: the service decides, from the first moment.
_MAIN = """
from signal import SIG_IGN, SIGINT, SIGTERM, signal
signal(SIGINT, SIG_IGN), signal(SIGTERM, SIG_IGN)
from service.workers.worker import main
main()
"""


class WorkerProcess:
    """A worker in a process of its own.

    Attributes:
        socket: the service's end.
    """

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
        """The slots, once it has loaded the model."""
        return mmap.mmap(self._memory.fileno(), size)

    def kill(self) -> None:
        self._process.kill()

    def wait(self) -> None:
        """Wait for it to exit; blocks."""
        self._process.wait()
        self._memory.close()


class WorkerThread:
    """The same as a thread, for a single core or a system without memory files."""

    def __init__(self) -> None:
        self.socket, other = socket.socketpair()
        self._thread = threading.Thread(target=self._run, args=[other], name="worker", daemon=True)
        self._thread.start()

    def _run(self, other: socket.socket) -> None:
        from service.workers.worker import run  # with torch, which takes seconds

        run(other, self._map)

    def _map(self, size: int) -> mmap.mmap:
        self._shared = mmap.mmap(-1, size)
        return self._shared

    def memory(self, size: int) -> mmap.mmap:
        return self._shared

    def kill(self) -> None:
        """It ends after its step."""

    def wait(self) -> None:
        self._thread.join(_LONGEST_WAIT_S)
