"""What an ingress replica makes of the ways in which Serve gives no answer."""

from __future__ import annotations

import json
import subprocess
import sys

from tests.conftest import REPOSITORY

# In a process of its own: where warnings are errors, Ray is not imported.
ASK = """
import asyncio, json

from ray.exceptions import RayActorError, RayTaskError
from ray.serve.exceptions import RequestCancelledError

from service.cluster import deployment
from service.engine.batching import EngineBusyError


class Response:
    def __init__(self, error=None, silent=False):
        self.error, self.silent, self.cancelled = error, silent, False

    def cancel(self):
        self.cancelled = True

    def __await__(self):
        return self.wait().__await__()

    async def wait(self):
        if self.silent:
            await asyncio.Event().wait()
        if self.error is not None:
            raise self.error
        return "answer"


async def ask(response):
    try:
        async with asyncio.timeout(0.01 if response.silent else 60):
            answer = await deployment._answer(response)
    except Exception as error:
        answer = type(error).__name__
    return [answer, response.cancelled]


async def main():
    answers = [
        await ask(Response()),
        await ask(Response(RayTaskError("predict", "", EngineBusyError("full")))),
        await ask(Response(EngineBusyError("full"))),
        await ask(Response(RayTaskError("predict", "", KeyError("fault")))),
        await ask(Response(RayActorError())),
        await ask(Response(RequestCancelledError("one"))),
        await ask(Response(asyncio.CancelledError())),
        await ask(Response(ConnectionError("gone"))),
        await ask(Response(silent=True)),
    ]
    print(json.dumps(answers))


asyncio.run(main())
"""


def test_faults_of_the_model_and_of_the_way_to_it_are_told_apart() -> None:
    command = [sys.executable, "-c", ASK]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [
        ["answer", False],
        ["EngineBusyError", False],
        ["EngineBusyError", False],
        ["EngineError", False],
        ["ReplicaLostError", False],
        ["ReplicaLostError", False],
        ["ReplicaLostError", False],  # cancelled there: whoever asked is not
        ["ReplicaLostError", False],
        ["TimeoutError", True],
    ]
