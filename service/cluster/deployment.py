"""The service on Ray Serve: `serve run service.cluster:app`, or docker/serve.yaml (CLUSTER.md).

There are two deployments. Replicas of `Ingress` hold the sessions: they run the application of the
single process, with an engine that sends windows to the replicas of `Model`, which run the network.
"""

import asyncio
import gc
import logging
import os
import secrets
import threading
import time
from collections.abc import Mapping
from typing import Any, cast

import ray
from ray import serve
from ray.exceptions import RayTaskError
from ray.serve.config import AutoscalingConfig, AutoscalingPolicy, RequestRouterConfig
from ray.serve.handle import DeploymentHandle
from ray.serve.schema import LoggingConfig
from ray.util.metrics import Histogram
from starlette.types import ASGIApp
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from model import storage
from service.access.tokens import TokenBook
from service.app import LoadModel, create_app, pick_device, pick_model, warm_engine
from service.cluster.calls import CallReplica, ReplicaLostError
from service.cluster.drain import POLL_S, drain_when_stopping
from service.cluster.engine import RemoteEngine
from service.cluster.flow import UnreadLimit
from service.cluster.model import ModelWorker, weights_digest
from service.engine.batching import EngineError, Priority
from service.ops import logs
from service.ops.metrics import STEP_BUCKETS_S
from service.settings import ClusterSettings, Settings
from service.state import ServiceState

logger = logging.getLogger(__name__)

# Requests of an ingress replica beside sessions and uploads: pages, probes, refusals. With room to
# spare the service itself refuses, and gives a reason; Serve would not.
SPARE_REQUESTS = 64

# Share of the admitted sessions above which ingress replicas are added.
TARGET_SESSIONS = 2 / 3


def calling(model: DeploymentHandle) -> CallReplica:
    async def call(route: str, method: str, *arguments: Any) -> Any:
        """What the replica returns or raises; ReplicaLostError if it does not answer."""
        task = asyncio.current_task()
        response = getattr(model.options(session_id=route), method).remote(*arguments)
        try:
            return await response
        except asyncio.CancelledError:
            if task is not None and not task.cancelling():  # Serve's way to end a request there
                raise ReplicaLostError("the request was cancelled") from None
            response.cancel()
            raise
        except RayTaskError as error:  # raised by the replica's code
            if isinstance(error.cause, EngineError):
                raise error.cause from None
            raise EngineError(f"the model replica failed: {error}") from error
        except EngineError:  # the same over gRPC
            raise
        except Exception as error:  # of Ray, Serve or gRPC
            raise ReplicaLostError(f"{type(error).__name__}: {error}") from error

    return call


class Steps:
    """The time that the engine computes; implements ``EngineObserver``. Steps also go to Ray's
    metrics, under their name in the single process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._step_s = 0.0
        self._asked_s = time.monotonic()
        self._seconds = Histogram(
            "rse_step_seconds",
            description="Time of the model for a batch",
            boundaries=list(STEP_BUCKETS_S),
            tag_keys=("way",),
        )

    def batch_done(self, priority: Priority, windows: int, step_s: float, waited_s: float) -> None:
        with self._lock:
            self._step_s += step_s
        self._seconds.observe(step_s, {"way": priority.name.lower()})

    def batch_failed(self, priority: Priority) -> None:
        """Reported by the session of the request."""

    def share(self, workers: int) -> float:
        """Fraction of these workers' time since the last call."""
        with self._lock:
            now_s = time.monotonic()
            elapsed_s, self._asked_s = now_s - self._asked_s, now_s
            step_s, self._step_s = self._step_s, 0.0
        return step_s / (workers * elapsed_s) if elapsed_s > 0 else 0.0


@serve.deployment(
    ray_actor_options={"num_cpus": 1},
    # Streams return to the replica that holds their state.
    request_router_config=RequestRouterConfig(
        request_router_class="ray.serve.experimental.consistent_hash_router.ConsistentHashRouter"
    ),
    max_ongoing_requests=1024,  # requests queue in the engine, which knows priorities
    autoscaling_config=AutoscalingConfig(
        min_replicas=1,
        max_replicas=16,
        policy=AutoscalingPolicy(policy_function="service.cluster.scaling:StepTimePolicy"),
    ),
    health_check_period_s=5,
    graceful_shutdown_timeout_s=10,
    logging_config=LoggingConfig(enable_access_log=False),  # a line for every window
)
class Model(ModelWorker):
    """A model replica, on the CPUs or the GPU share of its ``ray_actor_options``."""

    def __init__(self, settings: Settings, cluster: ClusterSettings, load_model: LoadModel) -> None:
        logs.configure(settings.log_format)
        cpus = ray.get_runtime_context().get_assigned_resources().get("CPU", 1)
        os.environ["OMP_NUM_THREADS"] = str(max(1, int(cpus)))  # cores of the engine's workers
        device = pick_device(settings.device)
        name = pick_model(settings.model, device)
        transcriber = load_model(name, device)
        self._step_time = Steps()
        engine = warm_engine(transcriber, self._step_time, settings)
        gc.freeze()  # see EngineSlot.take
        self._hang_timeout_s, self._workers = settings.hang_timeout_s, engine.workers
        super().__init__(engine, weights_digest(transcriber), device, cluster)
        logger.info("model %s is ready on %s", engine.config.name, device)

    def check_health(self) -> None:
        """Called by Serve, which replaces a failing replica."""
        if not self.engine.ready or self.engine.heartbeat_age_s > self._hang_timeout_s:
            raise RuntimeError("the engine hangs, was closed or has no worker process")

    def record_autoscaling_stats(self) -> dict[str, float]:
        """For ``service.cluster.scaling``."""
        return {
            "busy": self._step_time.share(self._workers),
            "streams": float(self.streams),
        }

    async def __del__(self) -> None:
        await asyncio.to_thread(self.engine.close)


@serve.deployment(
    ray_actor_options={"num_cpus": 1},
    health_check_period_s=5,
    graceful_shutdown_wait_loop_s=0.5,
)
@serve.ingress()
class Ingress:
    """Sessions and endpoints: the application of the single process with a remote engine."""

    def __init__(
        self,
        settings: Settings,
        cluster: ClusterSettings,
        model: DeploymentHandle,
        token_secret: bytes,
    ) -> None:
        logs.configure(settings.log_format)
        self._settings = settings
        self._cluster = cluster
        self._token_secret = token_secret
        self._call = calling(model)

    async def __serve_build_asgi_app__(self) -> ASGIApp:
        """Called by Serve on the replica's event loop."""
        settings = self._settings
        clock = time.time  # the only one that replicas share; a jump shifts the tokens' expiry
        tokens = TokenBook(settings.token_lifetime_s, self._token_secret, clock)
        app = create_app(settings, get_engine=self._engine, tokens=tokens)
        context = serve.get_replica_context()
        self._draining: asyncio.Event = app.state.service.draining
        self._drain = asyncio.create_task(drain_when_stopping(self._draining, context))
        limited: Any = UnreadLimit(app, self._cluster.max_unread_bytes)
        return cast(ASGIApp, ProxyHeadersMiddleware(limited, list(settings.trusted_proxies)))

    def check_health(self) -> None:
        """Called by Serve on replicas that should stay: one that drains by mistake is replaced."""
        if self._draining.is_set():
            raise RuntimeError("the replica is draining")

    async def _engine(self, state: ServiceState) -> RemoteEngine:
        engine = await RemoteEngine.connect(self._call, self._cluster)
        state.slot.device = engine.description.device
        return engine


def build(
    settings: Settings,
    cluster: ClusterSettings,
    load_model: LoadModel = storage.load,
    ingress_options: Mapping[str, Any] | None = None,
    model_options: Mapping[str, Any] | None = None,
) -> serve.Application:
    """The application; options of the two deployments override those that the settings imply.

    Limits on sessions, uploads and clients apply to each ingress replica. Raises ValueError if
    `max_sessions` is `auto`: an ingress replica cannot measure the capacity of the cluster.
    """
    if settings.max_sessions == "auto":
        raise ValueError("a cluster needs a number in RSE_MAX_SESSIONS, for each ingress replica")
    model = cast(Any, Model).options(**(model_options or {})).bind(settings, cluster, load_model)
    ingress = cast(Any, Ingress).options(  # Serve's decorators make deployments of both
        **{
            "max_ongoing_requests": settings.max_sessions + settings.max_uploads + SPARE_REQUESTS,
            "autoscaling_config": AutoscalingConfig(
                min_replicas=1,
                max_replicas=16,
                target_ongoing_requests=TARGET_SESSIONS * settings.max_sessions,
                upscale_delay_s=5,
            ),
            # The drain, and the time to notice it.
            "graceful_shutdown_timeout_s": settings.drain_timeout_s + 2 * POLL_S,
            **(ingress_options or {}),
        }
    )
    return ingress.bind(settings, cluster, model, secrets.token_bytes(32))


def app(arguments: dict[str, str]) -> serve.Application:
    """For `serve run` and config files; all settings come from the environment.

    Raises `pydantic.ValidationError` if they are invalid.
    """
    if arguments:
        raise ValueError("settings are environment variables (service/SETTINGS.md)")
    return build(Settings(), ClusterSettings())
