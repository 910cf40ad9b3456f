"""Notices that Serve is stopping an ingress replica, so that its sessions end properly.

Serve removes the replica from its routes, waits until it has no requests or
`graceful_shutdown_timeout_s` has passed, and kills it without notice. A session is a request that
may last for hours, so the replica polls the controller for its own status.
"""

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

POLL_S = 1.0  # between two checks of the replica's status
ANSWER_S = 5.0  # a controller that is placing many replicas is slow


async def drain_when_stopping(draining: asyncio.Event, context: ReplicaContext) -> None:
    """Sets the event once Serve stops this replica; failures are retried."""
    while not draining.is_set():
        await asyncio.sleep(POLL_S)
        try:
            async with asyncio.timeout(ANSWER_S):
                if await _is_stopping(context):
                    logger.info("Serve is stopping this replica: draining")
                    draining.set()
        except Exception as error:
            logger.warning("the controller gave no status of this replica: %r", error)


async def _is_stopping(context: ReplicaContext) -> bool:
    controller = ray.get_actor(CONTROLLER, NAMESPACE)
    try:
        details = await controller.get_deployment_details.remote(
            context.app_name, context.deployment
        )
    except KeyError:
        # The application is being deleted, or rebuilt by `serve deploy`: a rebuild takes long, may
        # fail, and stops nothing until it succeeds.
        overview = await controller.get_serve_status.remote(context.app_name)
        status = StatusOverview.FromString(overview).app_status.status
        return bool(status == APPLICATION_STATUS_DELETING)
    states = {replica.replica_id: replica.state for replica in details.replicas}
    return states.get(context.replica_id.unique_id) == STOPPING
