"""Liveness, readiness and versions: /healthz, /readyz, /info."""

import asyncio
import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from fastapi import APIRouter, Response
from pydantic import BaseModel

from service.access.problems import busy, responses
from service.ops.capacity import SessionRoom
from service.ops.watchdog import NOT_RUNNING, EngineSlot
from service.protocol.faults import ErrorCode
from service.settings import Settings

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
    """What the machine computes, if it was measured; windows are those of default streams."""

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


def health_router(
    settings: Settings, slot: EngineSlot, sessions: SessionRoom, draining: asyncio.Event
) -> APIRouter:
    router = APIRouter(tags=["state"])
    later = settings.retry_after_s

    @router.get(
        "/healthz", summary="Is the process alive", responses=responses(ErrorCode.NOT_READY)
    )
    async def healthz() -> Health:
        """200 while the event loop runs and the model's worker has a heartbeat."""
        if slot.hangs:
            detail = "the model's worker hangs and is being replaced"
            raise busy(ErrorCode.NOT_READY, detail, later)
        return Health()

    @router.get(
        "/readyz",
        summary="Is it ready for work",
        responses=responses(ErrorCode.NOT_READY, ErrorCode.DRAINING),
    )
    async def readyz(response: Response) -> Readiness:
        """200 once the weights are loaded and warmed up; 503 before, while shutting down, and while
        no worker process starts."""
        if draining.is_set():
            raise busy(ErrorCode.DRAINING, "the server is shutting down", later)
        if not slot.running:
            raise busy(ErrorCode.NOT_READY, slot.load_error or NOT_RUNNING, later)
        response.headers["Cache-Control"] = "no-store"
        return Readiness(sessions=sessions.count, max_sessions=sessions.limit)

    @router.get("/info", summary="What is running")
    async def info() -> Info:
        """Versions, the card of the model, and the settings in force."""
        engine, capacity = slot.engine, None
        if sessions.capacity is not None:
            capacity = CapacityInfo(
                windows_per_s=sessions.capacity.windows_per_s,
                sessions_windows_per_s_limit=sessions.total,
                sessions_windows_per_s=sessions.taken,
                sessions=sessions.capacity.sessions_by_kind,
            )
        return Info(
            version=version_of(DISTRIBUTION),
            python=platform.python_version(),
            libraries={name: version_of(name) for name in LIBRARIES},
            ready=slot.running and not draining.is_set(),
            draining=draining.is_set(),
            model=engine.config.name if engine else None,
            device=slot.device,
            sample_rate_hz=engine.config.sample_rate if engine else None,
            max_sessions=sessions.limit,
            capacity=capacity,
            heads=list(engine.config.heads) if engine else [],
            card=dict(engine.card) if engine else {},
            settings=settings.model_dump(mode="json", exclude=HIDDEN_SETTINGS),
        )

    return router
