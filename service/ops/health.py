"""Liveness, readiness and versions: /healthz, /readyz, /info."""

from importlib.metadata import PackageNotFoundError, version
from typing import Any

from fastapi import APIRouter, Response

from service.protocol.faults import ErrorCode, ProtocolError
from service.state import NOT_RUNNING, ServiceState

DISTRIBUTION = "rse-transcribe"
LIBRARIES = ("torch", "numpy", "av", "fastapi", "uvicorn", "websockets")

# Not shown to clients: addresses, paths and keys.
HIDDEN_SETTINGS = {"host", "port", "model", "keys", "keys_file", "trusted_proxies"}


def version_of(distribution: str) -> str:
    """The installed version; "unknown" if the code runs without being installed."""
    try:
        return version(distribution)
    except PackageNotFoundError:
        return "unknown"


def health_router(state: ServiceState) -> APIRouter:
    router = APIRouter()
    sessions, pool = state.sessions, state.pool

    @router.get("/healthz")
    async def healthz() -> dict[str, str]:
        """200 while the event loop runs and no worker hangs that cannot be replaced."""
        if pool.hangs:
            raise ProtocolError(ErrorCode.NOT_READY, "the model's worker hangs")
        return {"status": "ok"}

    @router.get("/readyz")
    async def readyz(response: Response) -> dict[str, Any]:
        """200 once the weights are loaded; 503 before, while shutting down, and while there is no
        worker."""
        if state.draining.is_set():
            raise ProtocolError(ErrorCode.DRAINING, "the server is shutting down")
        if not state.running:
            raise ProtocolError(ErrorCode.NOT_READY, state.load_error or NOT_RUNNING)
        response.headers["Cache-Control"] = "no-store"
        return {"status": "ready", "sessions": sessions.count, "max_sessions": sessions.limit}

    @router.get("/info")
    async def info() -> dict[str, Any]:
        """Versions, the card of the model, the settings in force, and the measured capacity in
        windows of default streams: what the machine computes, what sessions may ask for and do."""
        capacity = None
        if sessions.capacity is not None:
            capacity = {
                "windows_per_s": sessions.capacity.windows_per_s,
                "sessions_windows_per_s_limit": sessions.total,
                "sessions_windows_per_s": sessions.taken,
            }
        return {
            "version": version_of(DISTRIBUTION),
            "libraries": {name: version_of(name) for name in LIBRARIES},
            "ready": state.ready,
            "draining": state.draining.is_set(),
            "model": pool.config.name if state.loaded else None,
            "card": dict(pool.card) if state.loaded else {},
            "device": pool.device,
            "workers": pool.workers if state.loaded else None,
            "max_sessions": sessions.limit,
            "capacity": capacity,
            "settings": state.settings.model_dump(mode="json", exclude=HIDDEN_SETTINGS),
        }

    return router
