"""The application: `create_app(settings)` assembles it, its lifespan starts the workers."""

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from fastapi import FastAPI
from starlette.middleware.cors import CORSMiddleware

from service import page
from service.access import problems
from service.access.gate import Gate
from service.access.tokens import token_router
from service.engine.load import available_cores, load_shipped
from service.live import websocket
from service.ops import health, metrics
from service.ops.capacity import capacity
from service.ops.metrics import Metrics
from service.settings import Settings, unknown_variables
from service.state import ServiceState
from service.upload import endpoint as upload
from service.upload import score
from service.workers.messages import LoadModel, Setup
from service.workers.pool import Pool
from service.workers.process import PROCESSES

logger = logging.getLogger(__name__)


def create_app(
    settings: Settings,
    *,
    load_model: LoadModel = load_shipped,
    processes: bool = PROCESSES,
    on_load_failure: Callable[[], None] | None = None,
) -> FastAPI:
    """The service as an ASGI application.

    It answers immediately and is ready once its workers have loaded the weights. If that fails,
    `on_load_failure` is called; without it the application stays up and reports the failure at
    /readyz. `load_model` is called in each worker; without `processes` there is one, a thread.

    Raises `service.access.keys.KeysError` if the API keys cannot be read.
    """
    for warning in unknown_variables(os.environ):
        logger.warning(warning)
    numbers = Metrics()
    pool = Pool(
        Setup(load=load_model, model=settings.model, device=settings.device),
        cores=available_cores(),
        workers=None if settings.workers == "auto" else settings.workers,
        hang_timeout_s=settings.hang_timeout_s,
        observer=numbers,
        processes=processes,
    )
    state = ServiceState(settings, pool, numbers)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        loading = asyncio.create_task(load(state, on_load_failure))
        try:
            yield
        finally:
            state.draining.set()
            loading.cancel()
            await asyncio.wait([loading])
            await pool.close()

    app = FastAPI(lifespan=lifespan, openapi_url=None)  # PROTOCOL.md describes it
    app.state.service = state
    problems.install(app)
    app.include_router(health.health_router(state))
    app.include_router(token_router(state.tokens))
    app.include_router(metrics.router)
    app.include_router(upload.router)
    app.include_router(score.router)
    app.include_router(websocket.router)
    refused = state.metrics.refused
    app.add_middleware(Gate, app.router, settings, state.keys, state.tokens, refused)
    if settings.allowed_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(settings.allowed_origins),
            allow_methods=["GET", "POST"],
            allow_headers=["Authorization"],
            expose_headers=["Retry-After", "Content-Disposition"],
        )
    page.serve(app)
    return app


async def load(state: ServiceState, on_failure: Callable[[], None] | None) -> None:
    """Starts the workers, measures their capacity, then declares the service ready."""
    settings, pool = state.settings, state.pool
    try:
        await pool.start()
        if settings.max_sessions == "auto":
            state.sessions.admit_by(await capacity(pool))
    except Exception as error:
        logger.exception("cannot load the model %s", settings.model)
        state.load_error = f"the model cannot be loaded: {type(error).__name__}"
        if on_failure is not None:
            on_failure()
        return
    state.loaded = True
    logger.info("model %s is ready on %s", pool.config.name, pool.device)
