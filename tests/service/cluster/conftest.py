"""Ray Serve in processes of its own: where warnings are errors, Ray is not imported."""

import multiprocessing
import os
import secrets
import signal
import tempfile
from collections.abc import Iterator
from concurrent.futures import BrokenExecutor, ProcessPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from tests.paths import REPOSITORY
from tests.service.servers import reserved_port

PATIENCE_S = 280.0  # of a machine that does much else; a deployment takes seconds

# Ray's own settings: it tells nobody of its use, needs no shared memory, kills nothing where
# others use up the machine's memory, and gives a slow one time to start its processes.
ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_OBJECT_STORE_ALLOW_SLOW_STORAGE": "1",
    "RAY_worker_register_timeout_seconds": "240",
    "RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S": "240",
    "RAY_SERVE_PROXY_HEALTH_CHECK_TIMEOUT_S": "240",
    "RAY_memory_monitor_refresh_ms": "0",
    "RAY_local_fs_capacity_threshold": "1.0",
    "RAY_enable_metrics_collection": "0",
    "RAY_AUTH_MODE": "token",
    "RAY_AUTH_TOKEN": secrets.token_hex(32),  # else one is put into the user's home
    "PYTHONPATH": str(REPOSITORY),
    "OMP_NUM_THREADS": "1",
    "RSE_MODEL": "live",
    "RSE_DEVICE": "cpu",
    "RSE_MAX_SESSIONS": "4",
    "RSE_IDLE_TIMEOUT_S": "3600",
    "RSE_HANG_TIMEOUT_S": "600",
}


def enter_session(log: str) -> None:
    """Makes this process the first of a session, with all that it says in a file."""
    os.setsid()
    output = os.open(log, os.O_WRONLY | os.O_CREAT)
    os.dup2(output, 1)
    os.dup2(output, 2)


def drive(function: str, arguments: dict[str, Any]) -> Any:
    """Calls a function of `tests.service.cluster.drive`, in the process where Ray is."""
    from tests.service.cluster import drive

    return getattr(drive, function)(**arguments)


class Cluster:
    """Ray Serve in a process of its own and that one's children."""

    def __init__(self, log: Path) -> None:
        self._reservation, self.port = reserved_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.websocket_url = f"ws://127.0.0.1:{self.port}/ws/transcribe"
        self._log = log
        self._deployed: dict[str, Any] | None = None
        spawn = multiprocessing.get_context("spawn")
        self._process = ProcessPoolExecutor(1, spawn, enter_session, (str(log),))
        with mock.patch.dict(os.environ, ENVIRONMENT):
            self._session = self._process.submit(os.getpid).result(PATIENCE_S)

    def command(self, do: str, **arguments: Any) -> Any:
        try:
            return self._process.submit(drive, do, arguments).result(PATIENCE_S)
        except (TimeoutError, BrokenExecutor):
            log = self._log.read_text(encoding="utf-8", errors="replace")
            raise AssertionError(f"no answer in {PATIENCE_S} s:\n{log}") from None

    def deploy(self, **wanted: Any) -> None:
        """Returns once all of it runs; does nothing where it runs already."""
        if wanted != self._deployed:
            self._deployed = None
            self.command("deploy", **wanted)
            self._deployed = wanted

    def replicas(self) -> list[int]:
        """Process ids of the replicas."""
        return [
            int(folder.name)
            for folder in Path("/proc").iterdir()
            if folder.name.isdecimal() and self._is_replica(folder)
        ]

    def _is_replica(self, folder: Path) -> bool:
        with suppress(OSError):
            ours = os.getsid(int(folder.name)) == self._session
            return ours and b"ServeReplica" in (folder / "cmdline").read_bytes()
        return False

    def close(self) -> None:
        """Ends Ray, by force where it does not end of itself."""
        try:
            self.command("end")
        finally:
            for folder in Path("/proc").iterdir():
                if folder.name.isdecimal():
                    with suppress(ProcessLookupError):
                        if os.getsid(int(folder.name)) == self._session:
                            os.kill(int(folder.name), signal.SIGKILL)
            self._process.shutdown()
            self._reservation.close()


@contextmanager
def ray_cluster(folder: Path) -> Iterator[Cluster]:
    cluster = Cluster(folder / "ray.log")
    with tempfile.TemporaryDirectory(prefix="rse") as short:  # sockets lie in it
        try:
            cluster.command("begin", port=cluster.port, folder=short)
            yield cluster
        finally:
            cluster.close()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Ray Serve, shared by the tests of a module; each deploys what it needs."""
    with ray_cluster(tmp_path_factory.mktemp("ray")) as running:
        yield running
