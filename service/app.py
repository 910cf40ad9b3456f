"""The application: `create_app(settings)` puts the rooms together, the lifespan loads the model."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import torch
from fastapi import FastAPI

from model import checkpoint
from service import access, health, page, problems, tokens, upload, websocket
from service.engine import Engine, Transcriber
from service.problems import ProblemDetails
from service.settings import Settings
from service.state import ServiceState

logger = logging.getLogger(__name__)

LoadModel = Callable[[str, str], Transcriber]
"""Weights by name or path, and a device, to a network; `model.checkpoint.load` but for tests."""


def create_app(
    settings: Settings,
    *,
    load_model: LoadModel = checkpoint.load,
    on_load_failure: Callable[[], None] | None = None,
) -> FastAPI:
    """The service as an ASGI application.

    It answers at once and is ready when the weights are loaded and warm. `on_load_failure` is
    called where that fails; without it the application stays up and says so at /readyz.

    Raises `service.keys.KeysError` where the API keys cannot be read.
    """
    state = ServiceState(settings)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        loading = asyncio.create_task(load(state, load_model, on_load_failure))
        try:
            yield
        finally:
            state.draining.set()
            loading.cancel()
            await asyncio.wait([loading])
            if state.engine is not None:
                await asyncio.to_thread(state.engine.close)

    app = FastAPI(
        title="rse-transcribe",
        version=health.version_of(health.DISTRIBUTION),
        summary="Real-time transcription of music to MIDI.",
        description="The live protocol, `WS /ws/transcribe`, is described in PROTOCOL.md.",
        lifespan=lifespan,
        # Their pages load scripts from elsewhere, which the content security policy forbids.
        docs_url=None,
        redoc_url=None,
    )
    app.state.service = state
    problems.install(app)
    app.include_router(health.router)
    app.include_router(upload.router)
    app.include_router(tokens.router)
    app.include_router(websocket.router)
    access.install(app, settings, state.keys, state.tokens)
    page.serve(app)
    describe(app)
    return app


async def load(
    state: ServiceState, load_model: LoadModel, on_failure: Callable[[], None] | None
) -> None:
    """Loads and warms the model off the event loop, then declares the service ready."""
    settings = state.settings
    try:
        state.device = pick_device(settings.device)
        weights = pick_model(settings.model, state.device)
        building = asyncio.create_task(
            asyncio.to_thread(build_engine, lambda: load_model(weights, state.device))
        )
        try:
            engine = await asyncio.shield(building)
        except asyncio.CancelledError:
            # A thread cannot be stopped, and a worker that outlives the interpreter aborts it.
            await asyncio.wait([building])
            if building.exception() is None:
                await asyncio.to_thread(building.result().close)
            raise
    except Exception as error:
        logger.exception("cannot load the model %s", settings.model)
        state.load_error = f"the model cannot be loaded: {type(error).__name__}"
        if on_failure is not None:
            on_failure()
        return
    state.engine = engine
    logger.info("model %s is ready on %s", engine.config.name, state.device)


def build_engine(load_model: Callable[[], Transcriber]) -> Engine:
    """The model behind its worker, warmed up; takes seconds."""
    engine = Engine(load_model())
    try:
        engine.warm_up()
    except BaseException:
        engine.close()
        raise
    return engine


def pick_device(device: str) -> str:
    """`auto` is CUDA where there is some, else the CPU."""
    if device != "auto":
        return device
    return "cuda" if torch.cuda.is_available() else "cpu"


def pick_model(model: str, device: str) -> str:
    """`auto` is the more accurate weights on a GPU and the fast ones on a CPU."""
    if model != "auto":
        return model
    return "accurate" if device.startswith("cuda") else "live"


def describe(app: FastAPI) -> None:
    """Puts the schema of problems into the OpenAPI document, which refers to it by name."""
    generate = app.openapi

    def openapi() -> dict[str, object]:
        document = generate()
        schemas = document.setdefault("components", {}).setdefault("schemas", {})
        template = "#/components/schemas/{model}"
        schema = ProblemDetails.model_json_schema(ref_template=template)
        schemas.update(schema.pop("$defs", {}))
        schemas["ProblemDetails"] = schema
        return document

    app.openapi = openapi  # type: ignore[method-assign]
