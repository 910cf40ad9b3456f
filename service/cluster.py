"""The service on Ray Serve: `serve run service.cluster:app`, or docker/serve.yaml (CLUSTER.md).

Each replica is a complete application with its own workers. Ray Serve distributes requests, and
starts, scales and restarts replicas. If a replica exits, clients resume their sessions on another.
"""

import asyncio
from typing import Any, cast

from ray import serve
from starlette.types import ASGIApp
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from service.app import create_app
from service.ops import logs
from service.settings import Settings
from service.state import ServiceState

# Maximum number of concurrent requests of a replica. Higher than the service's own default limits,
# so that the service rejects the excess requests itself and states a reason.
MAX_REQUESTS = 1024

_states: list[ServiceState] = []  # state of this replica's application, once it is built


def build() -> ASGIApp:
    """Return the application with the settings of the environment. Called in the replica."""
    settings = Settings()
    logs.configure(settings.log_format)
    app: Any = create_app(settings)
    _states.append(app.state.service)
    # 127.0.0.1 is Ray Serve's proxy. "*" has its meaning only if it is alone.
    trusted = ["*"] if "*" in settings.trusted_proxies else ["127.0.0.1", *settings.trusted_proxies]
    return cast(ASGIApp, ProxyHeadersMiddleware(app, trusted))


class Replica:
    """Health check of a replica. The class is not decorated directly, because Ray Serve would then
    copy it together with its globals."""

    async def check_health(self) -> None:
        """Wait until the model is loaded. Raises RuntimeError if loading fails or a worker is
        unresponsive. Ray Serve then replaces the replica."""
        for state in _states:
            while not (state.loaded or state.load_error):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
            if state.load_error or state.pool.is_unresponsive:
                raise RuntimeError(state.load_error or "a worker is unresponsive")


Transcription = cast(Any, serve.deployment)(
    name="Transcription",
    ray_actor_options={"num_cpus": 1},  # Ray sets OMP_NUM_THREADS to it, so one worker starts
    max_ongoing_requests=MAX_REQUESTS,
    # A session counts as one request until it ends.
    autoscaling_config={"min_replicas": 1, "max_replicas": 16, "target_ongoing_requests": 6},
    health_check_period_s=5,
    graceful_shutdown_timeout_s=20,  # sessions that are still open then resume elsewhere
    graceful_shutdown_wait_loop_s=0.5,
)(serve.ingress(build)(Replica))

app = Transcription.bind()
