"""Real servers on free ports, for tests and benchmarks.

This module must not change the environment of the importing process, because benchmarks run as a
user would run them.
"""

import asyncio
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from tests.paths import REPOSITORY
from tests.service.apps import LONG_TIMEOUT_S

FAKE = "tests.service.serve_fake"
TONES = (FAKE, "{port}")  # arguments of a server that needs no weights
START_S = 240.0  # a server starts within seconds, but needs longer on a busy machine
STOP_S = 120.0
# The machine may pause. Clients must not count as idle then, workers not as unresponsive, and live
# sessions not as late.
PATIENT = {
    f"RSE_{name}_S": f"{LONG_TIMEOUT_S:g}"
    for name in ("IDLE_TIMEOUT", "HANG_TIMEOUT", "OVERLOAD_LAG")
}
ONE_CLIENT = {"RSE_MAX_SESSIONS_PER_CLIENT": "100"}  # one client may use all slots


def reserved_port() -> tuple[socket.socket, int]:
    """Reserve a port of 127.0.0.1 until the socket is closed. The socket does not listen, so that a
    server can bind the same address (SO_REUSEADDR, socket(7))."""
    reservation = socket.socket()
    reservation.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    reservation.bind(("127.0.0.1", 0))
    return reservation, reservation.getsockname()[1]


def responds(url: str) -> bool:
    """Return True if an address responds with status 200."""
    try:
        # Certificates take 70 ms of CPU time to load, and this address needs none.
        return httpx.get(url, timeout=60, verify=False).status_code == 200
    except httpx.TransportError:
        return False


_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload([FAKE])


class ForkedServer:
    """Process of FAKE, with the methods of Popen. It is forked from a process that has imported
    torch, because the import takes seconds."""

    def __init__(self, arguments: list[str], log: Path, environment: dict[str, str]) -> None:
        self._process = _FORKS.Process(target=_serve_fake, args=(arguments, log, environment))
        self._process.start()
        self.pid: int = self._process.pid or 0
        self.poll = lambda: self._process.exitcode
        self.kill = self._process.kill

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        if (status := self._process.exitcode) is None:
            raise subprocess.TimeoutExpired(FAKE, timeout or 0)
        return status

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)


def _serve_fake(arguments: list[str], log: Path, environment: dict[str, str]) -> None:
    from tests.service import serve_fake

    os.environ.clear()
    os.environ.update(environment)
    os.chdir(REPOSITORY)
    with log.open("ab") as output:
        for stream in (1, 2):
            os.dup2(output.fileno(), stream)
    port, *heads = arguments
    serve_fake.main(int(port), *heads)


ServerProcess = subprocess.Popen[bytes] | ForkedServer


def wait_for_response(url: str, process: ServerProcess, log: Path) -> None:
    """Wait until the address responds. Fail if the process exits or needs too long."""
    deadline = time.monotonic() + START_S
    while not responds(url):
        output = log.read_text(encoding="utf-8", errors="replace")
        assert process.poll() is None, f"the server has exited:\n{output}"
        assert time.monotonic() < deadline, f"not ready after {START_S} s:\n{output}"
        time.sleep(0.05)


class RunningServer:
    """A server in a separate process."""

    def __init__(self, arguments: list[str], log: Path, environment: dict[str, str]) -> None:
        self._reservation, self.port = reserved_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.websocket_url = f"ws://127.0.0.1:{self.port}/ws/transcribe"
        self._log = log
        module, *rest = (argument.format(port=self.port) for argument in arguments)
        variables = {**os.environ, **PATIENT, **ONE_CLIENT, **environment}
        self.process: ServerProcess
        log.touch()
        if module == FAKE:
            # One worker is a thread. More are processes, each of which imports torch for seconds.
            self.process = ForkedServer(rest, log, {"RSE_WORKERS": "1", **variables})
            return
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", module, *rest],
                cwd=REPOSITORY,
                env=variables,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    @property
    def log(self) -> str:
        return self._log.read_text(encoding="utf-8", errors="replace")

    def wait_until_ready(self) -> None:
        wait_for_response(f"{self.url}/readyz", self.process, self._log)

    def terminate(self) -> int:
        """Stop the server as a supervisor would, and return its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(STOP_S)

    def close(self) -> None:
        """Kill the server if it still runs, and release its port."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(STOP_S)
        self._reservation.close()

    def sessions(self) -> int:
        count: int = httpx.get(f"{self.url}/readyz", timeout=60, verify=False).json()["sessions"]
        return count


StartServer = Callable[..., RunningServer]


@contextmanager
def server_starter(folder: Path) -> Iterator[StartServer]:
    """Yield a function that starts `python -m ARGUMENTS` with `{port}` replaced. At the end, kill
    all servers that still run."""
    servers: list[RunningServer] = []

    def start(*arguments: str, wait: bool = True, **environment: str) -> RunningServer:
        log = folder / f"server-{len(servers)}.log"
        servers.append(RunningServer(list(arguments), log, environment))
        if wait:
            servers[-1].wait_until_ready()
        return servers[-1]

    try:
        yield start
    finally:
        for server in servers:
            server.close()


async def wait_until(
    condition: Callable[[], bool],
    describe: Callable[[], object] = lambda: "timed out",
    timeout_s: float = STOP_S,
) -> None:
    """Poll until `condition` returns true. On a timeout, report the result of `describe`."""
    deadline = time.monotonic() + timeout_s
    while not await asyncio.to_thread(condition):
        assert time.monotonic() < deadline, describe()
        await asyncio.sleep(0.02)
