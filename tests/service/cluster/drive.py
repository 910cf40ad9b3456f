"""Ray Serve on this machine, for tests; called in a process of its own (`conftest.Cluster`)."""

from pathlib import Path

import ray
import yaml
from ray import serve
from ray.serve.schema import ServeDeploySchema

from service import cluster

LOGICAL_CPUS = 4
OBJECT_STORE_BYTES = 100 * 1024 * 1024


def begin(port: int, folder: str) -> None:
    ray.init(
        address="local",
        num_cpus=LOGICAL_CPUS,
        object_store_memory=OBJECT_STORE_BYTES,
        include_dashboard=False,
        _node_ip_address="127.0.0.1",
        _temp_dir=folder,
    )
    serve.start(http_options={"host": "127.0.0.1", "port": port})


def deploy(replicas: int) -> None:
    """Runs the application; its settings come from this process's environment."""
    deployment = cluster.Transcription.options(
        autoscaling_config=None, num_replicas=replicas, health_check_timeout_s=300
    )
    serve.run(deployment.bind())


def check(file: str) -> None:
    """Whether Serve takes this config file."""
    ServeDeploySchema.model_validate(yaml.safe_load(Path(file).read_text(encoding="utf-8")))


def end() -> None:
    ray.shutdown()
