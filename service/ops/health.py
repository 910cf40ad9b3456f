"""Is the process alive, may it have work, and what is it: /healthz, /readyz, /info."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel

from service.access.problems import ProblemCode, busy, responses
from service.state import NOT_RUNNING, ServiceState

router = APIRouter(tags=["state"])

DISTRIBUTION = "rse-transcribe"
LIBRARIES = ("torch", "numpy", "soxr", "soundfile", "fastapi", "uvicorn", "websockets")

# Settings that tell nothing of the machine: no address, and no path a model may have come from.
HIDDEN_SETTINGS = {"host", "port", "model", "keys", "keys_file", "trusted_proxies"}


class Health(BaseModel):
    """The process answers."""

    status: str = "ok"


class Ready(BaseModel):
    """The weights are loaded and warm."""

    status: str = "ready"
    sessions: int
    max_sessions: int


class Info(BaseModel):
    """What is running here."""

    version: str
    python: str
    libraries: dict[str, str]
    ready: bool
    draining: bool
    model: str | None
    device: str
    sample_rate_hz: float | None
    heads: list[str]
    card: dict[str, Any]
    settings: dict[str, Any]


def version_of(distribution: str) -> str:
    """The version installed, "unknown" where the code runs without being installed."""
    try:
        return version(distribution)
    except PackageNotFoundError:
        return "unknown"


def _state(request: Request) -> ServiceState:
    state: ServiceState = request.app.state.service
    return state


@router.get("/healthz", summary="Is the process alive", responses=responses(ProblemCode.NOT_READY))
async def healthz(request: Request) -> Health:
    """200 while the event loop runs and the model's worker shows that it lives."""
    state = _state(request)
    if state.hangs:
        detail = "the model's worker hangs and is being replaced"
        raise busy(ProblemCode.NOT_READY, detail, state.settings.retry_after_s)
    return Health()


@router.get(
    "/readyz",
    summary="May it have work",
    responses=responses(ProblemCode.NOT_READY, ProblemCode.DRAINING),
)
async def readyz(request: Request, response: Response) -> Ready:
    """200 once the weights are loaded and warmed up; 503 before, and while going down."""
    state = _state(request)
    later = state.settings.retry_after_s
    if state.draining.is_set():
        raise busy(ProblemCode.DRAINING, "the server is going down", later)
    if not state.ready:
        raise busy(ProblemCode.NOT_READY, state.load_error or NOT_RUNNING, later)
    response.headers["Cache-Control"] = "no-store"
    return Ready(sessions=state.sessions.taken, max_sessions=state.sessions.total)


@router.get("/info", summary="What is running")
async def info(request: Request) -> Info:
    """Versions, the card of the model, and the settings in force."""
    state = _state(request)
    engine = state.engine
    return Info(
        version=version_of(DISTRIBUTION),
        python=platform.python_version(),
        libraries={name: version_of(name) for name in LIBRARIES},
        ready=state.ready,
        draining=state.draining.is_set(),
        model=engine.config.name if engine else None,
        device=state.device,
        sample_rate_hz=engine.config.sample_rate if engine else None,
        heads=list(engine.config.heads) if engine else [],
        card=dict(engine.card) if engine else {},
        settings=state.settings.model_dump(mode="json", exclude=HIDDEN_SETTINGS),
    )
