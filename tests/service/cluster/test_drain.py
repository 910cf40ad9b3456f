"""When an ingress replica drains, by what Serve's controller says of it."""

from __future__ import annotations

import json
import subprocess
import sys

from tests.conftest import REPOSITORY

# In a process of its own: where warnings are errors, Ray is not imported.
ASK = """
import asyncio, json, sys
from types import SimpleNamespace

from ray.serve.generated.serve_pb2 import ApplicationStatus, StatusOverview
from service.cluster import drain


class Controller:
    def __init__(self, replicas, application):
        self.replicas, self.application = replicas, application
        self.get_deployment_details = SimpleNamespace(remote=self.details)
        self.get_serve_status = SimpleNamespace(remote=self.status)

    async def details(self, application, deployment):
        if self.replicas is None:
            raise KeyError(deployment)
        replicas = self.replicas.items()
        return SimpleNamespace(
            replicas=[SimpleNamespace(replica_id=name, state=state) for name, state in replicas]
        )

    async def status(self, application):
        overview = StatusOverview()
        status = ApplicationStatus.Value(f"APPLICATION_STATUS_{self.application}")
        overview.app_status.status = status
        return overview.SerializeToString()


context = SimpleNamespace(
    app_name="default", deployment="Ingress", replica_id=SimpleNamespace(unique_id="me")
)
answers = []
for replicas, application in json.loads(sys.argv[1]):
    controller = Controller(replicas, application)
    drain.ray = SimpleNamespace(get_actor=lambda name, namespace: controller)
    answers.append(asyncio.run(drain._is_stopping(context)))
print(json.dumps(answers))
"""
CASES = [
    ({"me": "STOPPING", "other": "RUNNING"}, "DEPLOYING", True),
    ({"me": "RUNNING", "other": "STOPPING"}, "DEPLOYING", False),
    ({"other": "RUNNING"}, "RUNNING", False),
    # The deployment is not listed: `serve deploy` rebuilds the application, or it is deleted.
    (None, "DEPLOYING", False),
    (None, "DEPLOY_FAILED", False),
    (None, "DELETING", True),
]


def test_a_replica_drains_when_it_is_stopped_and_not_while_an_upgrade_is_built() -> None:
    cases = json.dumps([case[:2] for case in CASES])
    command = [sys.executable, "-c", ASK, cases]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [expected for *_, expected in CASES]
