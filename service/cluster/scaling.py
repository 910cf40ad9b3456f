"""How many model replicas a cluster needs. Runs in Serve's controller, so it imports nothing."""

from typing import Any

BUSY = "busy"
STREAMS = "streams"


class StepTimePolicy:
    """Keeps the share of time that replicas spend computing at the target.

    Ongoing requests are the wrong measure: a replica that serves a hundred streams on time rarely
    has more than a few.
    """

    def __init__(self, target_busy: float = 0.5, max_streams: int = 1024) -> None:
        """Args:
        target_busy: share of a replica's time, from 0 to 1; the rest absorbs bursts.
        max_streams: open streams per replica, however little time they take.
        """
        self._target_busy = target_busy
        self._max_streams = max_streams

    def __call__(self, ctx: Any) -> tuple[float, dict[str, Any]]:
        """``ctx`` is Serve's AutoscalingContext; bounds and delays are applied by Serve."""
        replicas = ctx.current_num_replicas
        busy = ctx.aggregated_metrics.get(BUSY, {}).values()
        streams = ctx.aggregated_metrics.get(STREAMS, {}).values()
        if not replicas or not busy:
            return ctx.target_num_replicas, {}
        # Assume that replicas which have not reported yet are like the others.
        for_time = replicas * sum(busy) / len(busy) / self._target_busy
        for_streams = replicas * sum(streams) / max(1, len(streams)) / self._max_streams
        return max(for_time, for_streams), {}
