"""The application: `create_app(settings)` assembles it, its lifespan loads the model."""

import asyncio
import logging
import os
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import Future
from contextlib import asynccontextmanager
from functools import partial
from typing import TypeVar

import torch
from fastapi import FastAPI
from pydantic.json_schema import models_json_schema
from starlette.middleware.cors import CORSMiddleware

from model import storage
from model.storage import fastest_dtype
from service import page
from service.access import problems
from service.access.gate import Gate
from service.access.problems import ProblemDetails
from service.access.tokens import TokenBook, token_router
from service.engine.batching import EngineSettings
from service.engine.engine import Engine
from service.engine.interface import EngineLike, EngineModel, EngineObserver
from service.live import websocket
from service.ops import health, metrics
from service.ops.capacity import capacity, default_cache
from service.settings import Settings, unknown_variables
from service.state import ServiceState
from service.upload import endpoint as upload
from service.upload import score
from service.upload.answer import Transcript

logger = logging.getLogger(__name__)

ResultT = TypeVar("ResultT")

LoadModel = Callable[[str, str], EngineModel]
"""Loads weights, by name or path, onto a device; `model.storage.load` except in tests."""

GetEngine = Callable[[ServiceState], Awaitable[EngineLike]]
"""Provides an engine that is ready to run; called again if that engine hangs."""


def create_app(
    settings: Settings,
    *,
    load_model: LoadModel = storage.load,
    get_engine: GetEngine | None = None,
    tokens: TokenBook | None = None,
    on_load_failure: Callable[[], None] | None = None,
) -> FastAPI:
    """The service as an ASGI application.

    It answers immediately and is ready once the weights are loaded and warmed up. If that fails,
    `on_load_failure` is called; without it the application stays up and reports the failure at
    /readyz. The engine runs in this process unless `get_engine` provides another; page tokens are
    kept in this process unless `tokens` are shared.

    Raises `service.access.keys.KeysError` if the API keys cannot be read.
    """
    for warning in unknown_variables(os.environ):
        logger.warning(warning)
    state = ServiceState(settings, tokens)

    async def engine() -> EngineLike:
        return await (get_engine(state) if get_engine else build_engine(state, load_model))

    state.slot.build = engine

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        tasks = [
            asyncio.create_task(load(state, on_load_failure)),
            asyncio.create_task(state.slot.watch()),
        ]
        try:
            yield
        finally:
            state.draining.set()
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            if state.slot.engine is not None:
                await asyncio.to_thread(state.slot.engine.close, state.close_timeout_s)

    app = FastAPI(
        title="rse-transcribe",
        version=health.version_of(health.DISTRIBUTION),
        summary="Real-time transcription of music to MIDI.",
        description="The live protocol, `WS /ws/transcribe`, is described in PROTOCOL.md.",
        lifespan=lifespan,
        # These pages load external scripts, which the content security policy forbids.
        docs_url=None,
        redoc_url=None,
    )
    app.state.service = state
    problems.install(app)
    app.include_router(health.health_router(settings, state.slot, state.sessions, state.draining))
    app.include_router(token_router(state.tokens, state.full))
    app.include_router(metrics.router)
    app.include_router(upload.router)
    app.include_router(score.router)
    app.include_router(websocket.router)
    refused = state.metrics.refused
    app.add_middleware(Gate, app.router, settings, state.keys, state.tokens, state.full, refused)
    if settings.allowed_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(settings.allowed_origins),
            allow_methods=["GET", "POST"],
            allow_headers=["Authorization"],
            expose_headers=["Retry-After", "Content-Disposition"],
        )
    page.serve(app)
    describe(app)
    return app


async def load(state: ServiceState, on_failure: Callable[[], None] | None) -> None:
    """Waits for an engine, measures its capacity, then declares the service ready."""
    settings = state.settings
    try:
        state.slot.device = pick_device(settings.device)
        engine = await state.slot.build()
        if settings.max_sessions == "auto" and isinstance(engine, Engine):
            await admit_by_capacity(state, engine)
    except Exception as error:
        logger.exception("cannot load the model %s", settings.model)
        state.slot.load_error = f"the model cannot be loaded: {type(error).__name__}"
        if on_failure is not None:
            on_failure()
        return
    state.slot.take(engine)
    logger.info("model %s is ready on %s", engine.config.name, state.slot.device)


async def admit_by_capacity(state: ServiceState, engine: Engine) -> None:
    device, load = state.slot.device, state.settings.max_load
    try:
        measure = partial(capacity, engine, device, default_cache(), load)
        found = await start_thread(measure, "capacity")
    except BaseException:
        await asyncio.to_thread(engine.close, state.close_timeout_s)
        raise
    state.sessions.admit_by(found)


async def build_engine(state: ServiceState, load_model: LoadModel) -> Engine:
    """An engine with freshly loaded weights, warmed up off the event loop."""
    device = state.slot.device
    name = pick_model(state.settings.model, device)
    building = start_thread(
        lambda: warm_engine(load_model(name, device), state.metrics, state.settings),
        "engine build",
    )
    try:
        return await asyncio.shield(building)
    except asyncio.CancelledError:
        # A thread cannot be stopped, and a worker that outlives the interpreter aborts it: one that
        # does not finish in time is ended with the process (`service.__main__.leave`).
        await asyncio.wait([building], timeout=state.close_timeout_s)
        if not building.done():
            building.cancel()
            logger.warning("gave up on a model that is still being loaded")
        elif building.exception() is None:
            await asyncio.to_thread(building.result().close)
        raise


def start_thread(work: Callable[[], ResultT], name: str) -> asyncio.Future[ResultT]:
    """Runs `work` in a thread that, unlike `asyncio.to_thread`, does not delay the loop's end.

    A result that arrives after the future was cancelled is dropped.
    """
    result: Future[ResultT] = Future()
    result.set_running_or_notify_cancel()

    def run() -> None:
        try:
            value = work()
        except BaseException as error:
            result.set_exception(error)
        else:
            result.set_result(value)

    threading.Thread(target=run, name=name, daemon=True).start()
    return asyncio.wrap_future(result)


def warm_engine(transcriber: EngineModel, observer: EngineObserver, settings: Settings) -> Engine:
    """An engine with this model, warmed up; takes seconds."""
    limits = EngineSettings(
        max_batch_windows=settings.max_batch_windows,
        max_step_ms=settings.max_step_ms,
        worker_processes=settings.worker_processes,
    )
    engine = Engine(transcriber, limits, observer=observer)
    try:
        engine.warm_up()
    except BaseException:
        engine.close()
        raise
    return engine


def pick_device(device: str) -> str:
    """`auto` is CUDA if available, else the CPU."""
    if device != "auto":
        return device
    return "cuda" if torch.cuda.is_available() else "cpu"


def pick_model(model: str, device: str) -> str:
    """`auto` is the most accurate weights on a GPU, else those that the processor has time for."""
    if model != "auto":
        return model
    if device.startswith("cuda"):
        return "accurate"
    return "live" if fastest_dtype(torch.device(device)) == torch.bfloat16 else "light"


def describe(app: FastAPI) -> None:
    """Adds the schemas that the OpenAPI document refers to by name."""
    generate = app.openapi

    def openapi() -> dict[str, object]:
        document = generate()
        schemas = document.setdefault("components", {}).setdefault("schemas", {})
        _, described = models_json_schema(
            [(ProblemDetails, "validation"), (Transcript, "validation")],
            ref_template="#/components/schemas/{model}",
        )
        schemas.update(described["$defs"])
        return document

    app.openapi = openapi  # type: ignore[method-assign]
