"""Ray Serve in separate processes, because importing Ray raises warnings, which are errors here."""

import hashlib
import os
import secrets
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.paths import REPOSITORY
from tests.service.servers import reserved_port, wait_for_response

TIMEOUT_S = 280.0  # a deployment needs seconds, but longer on a busy machine

KEY = "a key of the tests"

# Settings of Ray: it sends no usage statistics, needs no shared memory, kills no process if the
# machine's memory is full, and waits for slow machines.
ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_OBJECT_STORE_ALLOW_SLOW_STORAGE": "1",
    "RAY_raylet_start_wait_time_s": "240",
    "RAY_worker_register_timeout_seconds": "240",
    "RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S": "240",
    "RAY_SERVE_PROXY_HEALTH_CHECK_TIMEOUT_S": "240",
    "RAY_memory_monitor_refresh_ms": "0",
    "RAY_local_fs_capacity_threshold": "1.0",
    "RAY_enable_metrics_collection": "0",
    "RAY_AUTH_MODE": "token",
    "RAY_AUTH_TOKEN": secrets.token_hex(32),  # without it, Ray writes one to the home folder
    "PYTHONPATH": str(REPOSITORY),
    "OMP_NUM_THREADS": "1",
    "RSE_MODEL": "live",
    "RSE_DEVICE": "cpu",
    "RSE_ALLOWED_HOSTS": "127.0.0.1",
    "RSE_KEYS": f"band:{hashlib.sha256(KEY.encode()).hexdigest()}",
    "RSE_MAX_SESSIONS": "4",
    "RSE_IDLE_TIMEOUT_S": "3600",
    "RSE_HANG_TIMEOUT_S": "600",
    "RSE_OVERLOAD_LAG_S": "600",
}


@dataclass(frozen=True)
class Cluster:
    """Running cluster, below a path. ``session`` is the session ID of all its processes."""

    port: int
    session: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/music"

    def processes(self, command: bytes = b"") -> list[int]:
        """Return the IDs of processes whose command line contains ``command``."""
        pids = []
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                pid = int(folder.name)
                is_ours = os.getsid(pid) == self.session
                if is_ours and command in (folder / "cmdline").read_bytes():
                    pids.append(pid)
        return pids


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    log = tmp_path_factory.mktemp("ray") / "ray.log"
    reservation, port = reserved_port()
    with (
        reservation,
        log.open("wb") as output,
        tempfile.TemporaryDirectory(prefix="rse") as short_folder,  # paths of sockets are limited
        subprocess.Popen(
            [sys.executable, "-m", "tests.service.cluster.drive", str(port), short_folder],
            cwd=REPOSITORY,
            env={**os.environ, **ENVIRONMENT},
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            start_new_session=True,
        ) as driver,
    ):
        running = Cluster(port, driver.pid)
        try:
            wait_for_response(f"{running.url}/readyz", driver, log)
            yield running
            driver.communicate(timeout=TIMEOUT_S)  # it exits at the end of its input
        finally:
            for pid in running.processes():
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
