"""The service on Ray Serve: `serve run service.cluster:app`, or docker/serve.yaml (CLUSTER.md).

Each replica is the whole application with workers of its own. Serve routes, scales and restarts;
sessions that lose their replica are resumed by their clients at another.
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

MOST_REQUESTS = 1024
"""Under way in a replica: with room to spare the service itself refuses, and gives a reason."""

_states: list[ServiceState] = []  # of this replica


def build() -> ASGIApp:
    """The application, built on a replica's event loop; settings come from its environment."""
    settings = Settings()
    logs.configure(settings.log_format)
    app: Any = create_app(settings)
    _states.append(app.state.service)
    trusted = ["127.0.0.1", *settings.trusted_proxies]  # Serve's own proxy
    return cast(ASGIApp, ProxyHeadersMiddleware(app, trusted))


class Replica:
    """One replica; by itself, since Serve copies what it decorates, with copies of its globals."""

    async def check_health(self) -> None:
        """Serve sends clients to a replica after its first check, and replaces one that fails."""
        for state in _states:
            while not (state.loaded or state.load_error):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
            if state.load_error or state.pool.is_unresponsive:
                raise RuntimeError(state.load_error or "a worker hangs")


Transcription = cast(Any, serve.deployment)(
    name="Transcription",
    ray_actor_options={"num_cpus": 1},  # as many workers as that
    max_ongoing_requests=MOST_REQUESTS,
    # A session is a request for as long as it lasts.
    autoscaling_config={"min_replicas": 1, "max_replicas": 16, "target_ongoing_requests": 6},
    health_check_period_s=5,
    graceful_shutdown_timeout_s=20,  # then the sessions that are left resume elsewhere
    graceful_shutdown_wait_loop_s=0.5,
)(serve.ingress(build)(Replica))

app = Transcription.bind()
