"""Notifies an ingress replica that it will be stopped, so that its sessions end properly.

Serve takes a replica that it stops out of its routes, waits until it has no request left or
`graceful_shutdown_timeout_s` is over, and kills it, without notifying the replica. A session is a
request that may last for hours, so the replica asks the controller for its status.
"""

from __future__ import annotations

import asyncio
import logging

import ray
from ray.serve.context import ReplicaContext
from ray.serve.generated.serve_pb2 import APPLICATION_STATUS_DELETING, StatusOverview

logger = logging.getLogger(__name__)

# Serve's own names for its controller; the version of Ray is pinned.
CONTROLLER = "SERVE_CONTROLLER_ACTOR"
NAMESPACE = "serve"
STOPPING = "STOPPING"

ANSWER_S = 5.0  # for its answer; a controller that places many replicas is slow


async def drain_when_stopping(
    draining: asyncio.Event, context: ReplicaContext, poll_s: float
) -> None:
    """Sets the event once Serve stops this replica; retries after any failure."""
    while not draining.is_set():
        await asyncio.sleep(poll_s)
        try:
            async with asyncio.timeout(ANSWER_S):
                if await _is_stopping(context):
                    logger.info("Serve stops this replica: it drains")
                    draining.set()
        except Exception as error:
            logger.warning("the controller does not say how this replica stands: %r", error)


async def _is_stopping(context: ReplicaContext) -> bool:
    controller = ray.get_actor(CONTROLLER, NAMESPACE)
    try:
        details = await controller.get_deployment_details.remote(
            context.app_name, context.deployment
        )
    except KeyError:
        # The application goes down, or `serve deploy` builds it anew: that takes long, may fail,
        # and concerns nobody before it is through.
        overview = await controller.get_serve_status.remote(context.app_name)
        status = StatusOverview.FromString(overview).app_status.status
        return bool(status == APPLICATION_STATUS_DELETING)
    states = {replica.replica_id: replica.state for replica in details.replicas}
    return states.get(context.replica_id.unique_id) == STOPPING
