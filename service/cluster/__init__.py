"""The service on Ray Serve (CLUSTER.md): ingress replicas with sessions, replicas with the model.

Only `deployment` and `drain` import Ray; `app` is loaded on first use, so that Serve's controller
can import `scaling` alone.
"""

from typing import Any


def __getattr__(name: str) -> Any:
    if name == "app":  # `serve run service.cluster:app`
        from service.cluster.deployment import app

        return app
    raise AttributeError(name)
