"""Ray Serve on this machine, for tests: `python -m tests.service.cluster.drive PORT FOLDER`.

Validates docker/serve.yaml first. Exits at the end of its standard input.
"""

import sys

import ray
import yaml
from ray import serve
from ray.serve.schema import ServeDeploySchema

from service import cluster
from tests.paths import REPOSITORY

CONFIG = REPOSITORY / "docker" / "serve.yaml"
LOGICAL_CPUS = 2  # Ray starts an idle process for each
PREFIX = "/music"
OBJECT_STORE_BYTES = 100 * 1024 * 1024


def main(port: str, folder: str) -> None:
    ServeDeploySchema.model_validate(yaml.safe_load(CONFIG.read_text()))
    ray.init(
        address="local",
        num_cpus=LOGICAL_CPUS,
        object_store_memory=OBJECT_STORE_BYTES,
        include_dashboard=False,
        _node_ip_address="127.0.0.1",
        _temp_dir=folder,
    )
    serve.start(http_options={"host": "127.0.0.1", "port": int(port)})
    deployment = cluster.Transcription.options(
        autoscaling_config=None, num_replicas=1, health_check_timeout_s=300
    )
    serve.run(deployment.bind(), route_prefix=PREFIX)
    sys.stdin.read()
    ray.shutdown()


if __name__ == "__main__":
    main(*sys.argv[1:])
