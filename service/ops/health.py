"""Liveness, readiness and versions: /healthz, /readyz, /info."""

import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from fastapi import APIRouter, Response
from pydantic import BaseModel

from service.access.problems import busy, responses
from service.protocol.faults import ErrorCode
from service.state import NOT_RUNNING, ServiceState

DISTRIBUTION = "rse-transcribe"
LIBRARIES = ("torch", "numpy", "av", "fastapi", "uvicorn", "websockets")

# Not shown to clients: addresses, paths and keys.
HIDDEN_SETTINGS = {"host", "port", "model", "keys", "keys_file", "trusted_proxies"}


class Health(BaseModel):
    """The process is alive."""

    status: str = "ok"


class Readiness(BaseModel):
    """The weights are loaded and warm."""

    status: str = "ready"
    sessions: int
    max_sessions: int


class CapacityInfo(BaseModel):
    """What the machine computes, if it was measured; windows of default streams."""

    windows_per_s: float
    sessions_windows_per_s_limit: float
    """Those that sessions may ask for."""
    sessions_windows_per_s: float
    """Those that open sessions ask for."""
    sessions: dict[str, int]
    """Sessions that may be open if all are of one kind."""


class Info(BaseModel):
    """What runs here."""

    version: str
    python: str
    libraries: dict[str, str]
    ready: bool
    draining: bool
    model: str | None
    device: str
    workers: int
    sample_rate_hz: float | None
    max_sessions: int
    capacity: CapacityInfo | None
    heads: list[str]
    card: dict[str, Any]
    settings: dict[str, Any]


def version_of(distribution: str) -> str:
    """The installed version; "unknown" if the code runs without being installed."""
    try:
        return version(distribution)
    except PackageNotFoundError:
        return "unknown"


def health_router(state: ServiceState) -> APIRouter:
    router = APIRouter(tags=["state"])
    sessions, pool = state.sessions, state.pool

    @router.get(
        "/healthz", summary="Is the process alive", responses=responses(ErrorCode.NOT_READY)
    )
    async def healthz() -> Health:
        """200 while the event loop runs and no worker hangs that cannot be replaced."""
        if pool.hangs:
            raise busy(ErrorCode.NOT_READY, "the model's worker hangs")
        return Health()

    @router.get(
        "/readyz",
        summary="Is it ready for work",
        responses=responses(ErrorCode.NOT_READY, ErrorCode.DRAINING),
    )
    async def readyz(response: Response) -> Readiness:
        """200 once the weights are loaded; 503 before, while shutting down, and while there is no
        worker."""
        if state.draining.is_set():
            raise busy(ErrorCode.DRAINING, "the server is shutting down")
        if not state.running:
            raise busy(ErrorCode.NOT_READY, state.load_error or NOT_RUNNING)
        response.headers["Cache-Control"] = "no-store"
        return Readiness(sessions=sessions.count, max_sessions=sessions.limit)

    @router.get("/info", summary="What is running")
    async def info() -> Info:
        """Versions, the card of the model, and the settings in force."""
        capacity = None
        if sessions.capacity is not None:
            capacity = CapacityInfo(
                windows_per_s=sessions.capacity.windows_per_s,
                sessions_windows_per_s_limit=sessions.total,
                sessions_windows_per_s=sessions.taken,
                sessions=sessions.capacity.sessions_by_kind,
            )
        config = pool.config if state.loaded else None
        return Info(
            version=version_of(DISTRIBUTION),
            python=platform.python_version(),
            libraries={name: version_of(name) for name in LIBRARIES},
            ready=state.ready,
            draining=state.draining.is_set(),
            model=config.name if config else None,
            device=pool.device,
            workers=pool.workers,
            sample_rate_hz=config.sample_rate if config else None,
            max_sessions=sessions.limit,
            capacity=capacity,
            heads=list(config.heads) if config else [],
            card=dict(pool.card) if config else {},
            settings=state.settings.model_dump(mode="json", exclude=HIDDEN_SETTINGS),
        )

    return router
