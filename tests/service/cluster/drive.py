"""Ray Serve on this machine, for tests; called in a process of its own (`conftest.Cluster`).

Ray stays in that process and its children: it listens on free ports, in a folder of its own.
"""

from pathlib import Path
from typing import Any

import ray
import yaml
from ray import serve
from ray.serve._private import api, client
from ray.serve.schema import ServeDeploySchema

from model import storage
from model.transcriber import TranscriptionModel
from service.cluster import deployment as cluster
from service.cluster import drain as cluster_drain
from service.settings import ClusterSettings, Settings

# Two replicas of each kind fit, and those of an upgrade beside them, a fifth of one for each.
LOGICAL_CPUS = 2
CLUSTER = ClusterSettings(
    live_timeout_s=60,
    max_attempts=20,  # a machine that does much else is slow to see that a process is gone
    heartbeat_s=0.5,
    heartbeat_patience_s=300,
    max_unread_bytes=1024 * 1024,
)
OBJECT_STORE_BYTES = 100 * 1024 * 1024
PROXY_S = 240  # Serve's own minute is short for such a machine, and it has no setting for it


class Relabelled:
    """Loads shipped weights as if they had been trained again; called in the model's replicas."""

    def __init__(self, training: str) -> None:
        self._training = training

    def __call__(self, name: str, device: str) -> TranscriptionModel:
        transcriber = storage.load(name, device)
        transcriber.card["training"] = self._training
        return transcriber


def deploy(ingresses: int, models: int, training: str, settings: dict[str, Any]) -> None:
    """Runs the application; where one runs already, all its replicas are replaced in turn."""
    options: dict[str, Any] = {
        "autoscaling_config": None,
        "ray_actor_options": {"num_cpus": 0.2},
        "health_check_timeout_s": 300,  # of a machine that does much else
    }
    app = cluster.build(
        Settings(device="cpu", **{"model": "live", **settings}),
        CLUSTER,
        Relabelled(training),
        ingress_options={**options, "num_replicas": ingresses},
        model_options={**options, "num_replicas": models},
    )
    serve.run(app)


def replicas() -> dict[str, list[dict[str, Any]]]:
    """Those that run, by deployment."""
    controller = ray.get_actor(cluster_drain.CONTROLLER, cluster_drain.NAMESPACE)
    found: dict[str, list[dict[str, Any]]] = {}
    for name in ("Ingress", "Model"):
        details = ray.get(controller.get_deployment_details.remote("default", name))
        found[name] = [
            {"id": replica.replica_id, "pid": replica.pid, "state": str(replica.state.value)}
            for replica in details.replicas
        ]
    return found


def begin(port: int, folder: str) -> None:
    ray.init(
        address="local",
        num_cpus=LOGICAL_CPUS,
        object_store_memory=OBJECT_STORE_BYTES,
        include_dashboard=False,
        _node_ip_address="127.0.0.1",
        _temp_dir=folder,
    )
    api.HTTP_PROXY_TIMEOUT = client.HTTP_PROXY_TIMEOUT = PROXY_S
    serve.start(http_options={"host": "127.0.0.1", "port": port})


def check(file: str) -> None:
    """Whether Serve takes this config file."""
    ServeDeploySchema.model_validate(yaml.safe_load(Path(file).read_text(encoding="utf-8")))


def end() -> None:
    ray.shutdown()
