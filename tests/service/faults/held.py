"""What a server process holds, as the system and its own metrics tell it."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import httpx
import pytest

from tests.service.servers import RunningServer

PATIENCE_S = 60.0


@dataclass(frozen=True)
class Held:
    """Things that a server must give back."""

    sessions: int
    uploads: int
    tasks: int  # of the event loop; the server of `tests.service.serve_fake` counts them
    files: int  # open descriptors: sockets, pipes, spooled uploads
    threads: int

    @classmethod
    def by(cls, server: RunningServer) -> Self:
        """Skips the test on a system without /proc."""
        process = Path(f"/proc/{server.process.pid}")
        if not process.exists():
            pytest.skip("this system does not say what a process holds")
        metrics = dict(
            line.rsplit(" ", 1)
            for line in httpx.get(f"{server.url}/metrics", timeout=60).text.splitlines()
            if not line.startswith("#")
        )
        return cls(
            sessions=int(float(metrics["rse_sessions"])),
            uploads=int(float(metrics["rse_uploads"])),
            tasks=int(float(metrics.get("rse_tasks", 0))),
            files=len(list((process / "fd").iterdir())),
            threads=len(list((process / "task").iterdir())),
        )


async def wait_until(
    holds: Callable[[], bool],
    what: Callable[[], object] = lambda: "it never came",
    patience_s: float = PATIENCE_S,
) -> None:
    """Asks again and again; `what` says in a failure how it is."""
    deadline = time.monotonic() + patience_s
    while not await asyncio.to_thread(holds):
        assert time.monotonic() < deadline, what()
        await asyncio.sleep(0.02)
