"""Status endpoints: /healthz, /readyz, /info and /metrics."""

from importlib.metadata import PackageNotFoundError, version
from typing import Any

from fastapi import APIRouter, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from model.instruments import predicted_instruments
from service.protocol.errors import ErrorCode, ProtocolError
from service.state import ServiceState

# /info omits addresses, paths and keys.
HIDDEN_SETTINGS = {"host", "port", "model", "keys", "keys_file", "secret", "trusted_proxies"}

router = APIRouter()


def installed_version() -> str:
    try:
        return version("rse-transcribe")
    except PackageNotFoundError:  # the package is not installed
        return "unknown"


@router.head("/healthz", include_in_schema=False)
@router.get("/healthz")
async def healthz(request: Request) -> dict[str, str]:
    """Respond with 200, or with 503 while a worker is unresponsive."""
    state: ServiceState = request.app.state.service
    if state.pool.is_unresponsive:
        message = "a worker is unresponsive; restart the service if this persists"
        raise ProtocolError(ErrorCode.NOT_READY, message)
    return {"status": "ok"}


@router.head("/readyz", include_in_schema=False)
@router.get("/readyz")
async def readyz(request: Request, response: Response) -> dict[str, Any]:
    """Respond with 200 if the model is loaded and a worker is running, else with 503. Also respond
    with 503 during shutdown."""
    state: ServiceState = request.app.state.service
    state.check_ready()
    response.headers["Cache-Control"] = "no-store"
    sessions = state.sessions
    return {"status": "ready", "sessions": sessions.count, "max_sessions": sessions.limit}


@router.get("/info")
async def info(request: Request) -> dict[str, Any]:
    """Respond with the version, the model card, the settings, and the capacity in windows/s."""
    state: ServiceState = request.app.state.service
    sessions, pool, loaded = state.sessions, state.pool, state.loaded
    capacity = None
    if sessions.limits_load:
        capacity = {
            "windows_per_s": sessions.windows_per_s,
            "sessions_windows_per_s_limit": sessions.total,
            "sessions_windows_per_s": sessions.used,
        }
    return {
        "version": request.app.version,
        "ready": state.running and not state.draining.is_set(),
        "draining": state.draining.is_set(),
        "model": pool.config.name if loaded else None,
        "card": dict(pool.card) if loaded else {},
        "instruments": predicted_instruments(pool.config.heads) if loaded else [],
        "device": pool.device,
        "workers": pool.workers if loaded else None,
        "max_sessions": sessions.limit,
        "capacity": capacity,
        "settings": state.settings.model_dump(mode="json", exclude=HIDDEN_SETTINGS),
    }


@router.get("/metrics")
async def metrics(request: Request) -> Response:
    body = generate_latest(request.app.state.service.metrics.registry)
    return Response(body, media_type=CONTENT_TYPE_LATEST)
