"""The ASGI application: endpoints, access control and page. Its lifespan starts the workers.

The application sends the page's files with headers that forbid loading content from other sites.
"""

import asyncio
import logging
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from anyio import to_thread
from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response
from starlette.staticfiles import StaticFiles
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket

from service import health
from service.access import tokens
from service.access.gate import Gate
from service.access.problems import HANDLERS, problem_response
from service.engine.load import LoadModel, WorkerConfig, available_cores, load_network
from service.live import websocket
from service.ops.metrics import Metrics
from service.protocol.errors import ErrorCode, ProtocolError
from service.settings import Settings, unknown_variables
from service.state import ServiceState
from service.upload import endpoint as upload
from service.upload import score
from service.workers.pool import PROCESSES, WorkerPool

logger = logging.getLogger(__name__)

STATIC = Path(__file__).parent / "static"
KEYS_POLL_S = 1.0

PAGE_HEADERS = {
    "Cache-Control": "no-cache",  # browsers cache the files, but revalidate them by ETag
    "Content-Security-Policy": "default-src 'self'; base-uri 'none'; "
    "media-src 'self' blob:; form-action 'none'; frame-ancestors 'none'; object-src 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(self), midi=(self)",
}


def create_app(
    settings: Settings,
    *,
    load_model: LoadModel = load_network,
    processes: bool = PROCESSES,
) -> FastAPI:
    """Return the service as an ASGI application. Raises `service.access.keys.KeysError`.

    Args:
        load_model: function that loads the network in each worker.
        processes: False to use only one worker, in a thread.
    """
    for name in unknown_variables(os.environ):
        logger.warning("unknown setting: variable=%s", name)
    metrics = Metrics()
    model, device, log_format = settings.model, settings.device, settings.log_format
    pool = WorkerPool(
        WorkerConfig(load=load_model, model=model, device=device, log_format=log_format),
        cores=available_cores(),
        workers=None if settings.workers == "auto" else settings.workers,
        hang_timeout_s=settings.hang_timeout_s,
        processes=processes,
    )
    state = ServiceState(settings, pool, metrics)
    pool.on_batch, pool.on_worker_exit = state.on_batch, state.on_worker_exit

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        # Each upload uses a thread. The page's files and requests have the default number as well.
        to_thread.current_default_thread_limiter().total_tokens += settings.max_uploads
        loading = asyncio.create_task(load(state))
        watching = asyncio.create_task(watch_keys(state))
        try:
            yield
        finally:
            state.draining.set()
            loading.cancel()
            watching.cancel()
            await asyncio.wait([loading, watching])
            await pool.close()

    app = FastAPI(
        title="RSE Transcribe",
        description="PROTOCOL.md describes the websocket /ws/transcribe, and every error.",
        version=health.installed_version(),
        lifespan=lifespan,
        redoc_url=None,
        redirect_slashes=False,
        exception_handlers=HANDLERS,
    )
    app.state.service = state
    for endpoints in (health, tokens, upload, score, websocket):
        app.include_router(endpoints.router)
    app.add_middleware(Gate, app.router, settings, state.keys, state.tokens, metrics.refused)
    if settings.allowed_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(settings.allowed_origins),
            allow_methods=["GET", "POST"],
            allow_headers=["Authorization"],
            expose_headers=["Retry-After", "Content-Disposition"],
        )
    serve_page(app)
    return app


async def load(state: ServiceState) -> None:
    """Start the workers and mark the service as ready. On failure, set its ``load_error``."""
    settings, pool = state.settings, state.pool
    try:
        await pool.start()
        state.sessions.calibrate(pool.window_s, pool.running_workers, pool.config.sample_rate)
    except Exception as error:
        logger.exception("cannot load the model %s", settings.model)
        state.load_error = f"the model cannot be loaded: {type(error).__name__}"
        return
    state.loaded = True
    logger.info("model %s is ready on %s", pool.config.name, pool.device)


async def watch_keys(state: ServiceState) -> None:
    """Reload the keys when their file changes, and end the sessions of removed keys."""
    while True:
        await asyncio.sleep(KEYS_POLL_S)
        state.keys.reload_if_changed()
        state.end_revoked_sessions()


class PageFiles(StaticFiles):
    """Files of the page, sent with PAGE_HEADERS."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        # As GET, because the base class rejects other methods even if there is no such file.
        response = await super().get_response(path, {**scope, "method": "GET"})
        if scope["method"] not in ("GET", "HEAD"):
            raise HTTPException(405, headers={"Allow": "GET, HEAD"})
        response.headers.update(PAGE_HEADERS)
        return response


def serve_page(app: FastAPI) -> None:
    """Serve the page's files at all paths without an endpoint. They are the router's fallback,
    because a mount at / would also handle requests to an endpoint with a wrong method."""
    files = PageFiles(directory=STATIC, html=True)
    not_found = app.router.not_found

    async def fallback(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await files(scope, receive, send)
        elif scope["type"] == "websocket":
            error = ProtocolError(ErrorCode.NOT_FOUND, "no websocket at this path")
            await WebSocket(scope, receive, send).send_denial_response(problem_response(error))
        else:
            await not_found(scope, receive, send)

    app.router.default = fallback
