"""Ray Serve in processes of its own: where warnings are errors, Ray is not imported."""

import json
import os
import queue
import secrets
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.paths import REPOSITORY
from tests.service.servers import reserved_port

PATIENCE_S = 280.0  # of a machine that does much else; a deployment takes seconds
STOP_S = 60.0

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
}


class Cluster:
    """`tests.service.cluster.drive`, commanded."""

    def __init__(self, log: Path) -> None:
        self._reservation, self.port = reserved_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.websocket_url = f"ws://127.0.0.1:{self.port}/ws/transcribe"
        self._log = log
        self._deployed: dict[str, Any] | None = None
        environment = {name: value for name, value in os.environ.items() if name[:4] != "RAY_"}
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.service.cluster.drive", str(self.port)],
                cwd=REPOSITORY,
                env={**environment, **ENVIRONMENT},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                start_new_session=True,
            )
        self._answers: queue.Queue[bytes] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def log(self) -> str:
        return self._log.read_text(encoding="utf-8", errors="replace")

    def answer(self) -> Any:
        try:
            line = self._answers.get(timeout=PATIENCE_S)
        except queue.Empty:
            raise AssertionError(f"no answer in {PATIENCE_S} s:\n{self.log}") from None
        assert line, f"Ray has ended:\n{self.log}"
        return json.loads(line)

    def command(self, do: str, **arguments: Any) -> Any:
        assert self.process.stdin is not None
        self.process.stdin.write((json.dumps({"do": do, **arguments}) + "\n").encode())
        self.process.stdin.flush()
        return self.answer()

    def deploy(self, **wanted: Any) -> None:
        """Returns once all of it runs; does nothing where it runs already."""
        if wanted != self._deployed:
            self._deployed = None
            self.command("deploy", **wanted)
            self._deployed = wanted

    def running(self, deployment: str) -> list[int]:
        """Process ids of the replicas of `Ingress` or `Model` that run."""
        replicas = self.command("replicas")[deployment]
        return [one["pid"] for one in replicas if one["state"] == "RUNNING"]

    def close(self) -> None:
        """Ends Ray, by force where it does not end of itself."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            self.process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            pass
        finally:
            self._kill_session()
            self.process.wait(STOP_S)
            self._reader.join(STOP_S)
            self._reservation.close()
            assert self.process.stdout is not None
            self.process.stdout.close()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._answers.put(line)
        self._answers.put(b"")

    def _kill_session(self) -> None:
        """Whatever is left of the processes that it started."""
        for folder in Path("/proc").iterdir():
            if folder.name.isdecimal():
                try:
                    if os.getsid(int(folder.name)) == self.process.pid:
                        os.kill(int(folder.name), signal.SIGKILL)
                except ProcessLookupError:
                    pass


@contextmanager
def ray_cluster(folder: Path) -> Iterator[Cluster]:
    cluster = Cluster(folder / "ray.log")
    try:
        cluster.answer()  # it is up
        yield cluster
    finally:
        cluster.close()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Ray Serve, shared by the tests of a module; each deploys what it needs."""
    with ray_cluster(tmp_path_factory.mktemp("ray")) as running:
        yield running
