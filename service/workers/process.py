"""Starts a worker: a process, or a thread of this process.

Python threads contend for the GIL. One window needs hundreds of small operations, each of which
releases and re-acquires it. Workers are therefore processes on multi-core CPUs and on GPUs. A
worker never outlives the service: it exits when its socket is closed.
"""

import mmap
import os
import socket
import subprocess
import sys
import threading
from multiprocessing.connection import Connection

PROCESSES = hasattr(os, "memfd_create")  # Linux
_MAX_WAIT_S = 5.0  # for a thread
# Terminals and service managers signal the whole process group: only the service handles it.
_MAIN = """
from signal import SIG_IGN, SIGINT, SIGTERM, signal
signal(SIGINT, SIG_IGN), signal(SIGTERM, SIG_IGN)
from service.workers.worker import main
main()
"""


class WorkerProcess:
    """A worker in a separate process.

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
        """Map the slots, once the worker has loaded the model."""
        return mmap.mmap(self._memory.fileno(), size)

    def kill(self) -> None:
        self._process.kill()

    def wait(self) -> None:
        """Wait until it has exited; blocks."""
        self._process.wait()
        self._memory.close()


class WorkerThread:
    """A worker in a thread, for a single core or a system without memory files."""

    def __init__(self) -> None:
        self.socket, other = socket.socketpair()
        self._thread = threading.Thread(target=self._run, args=[other], name="worker", daemon=True)
        self._thread.start()

    def _run(self, other: socket.socket) -> None:
        from service.workers.worker import run  # with torch, which takes seconds

        run(Connection(other.detach()), self._map)

    def _map(self, size: int) -> mmap.mmap:
        self._shared = mmap.mmap(-1, size)
        return self._shared

    def memory(self, size: int) -> mmap.mmap:
        return self._shared

    def kill(self) -> None:
        """Do nothing: a thread exits after its step, once its socket is closed."""

    def wait(self) -> None:
        self._thread.join(_MAX_WAIT_S)
