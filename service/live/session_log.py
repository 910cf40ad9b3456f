"""What operators see of a session: a log line at each end, and counters."""

import logging
from time import monotonic

from service.access.clients import Client
from service.ops.logs import session_id
from service.ops.metrics import Metrics
from service.protocol.faults import ErrorCode
from service.protocol.server_messages import Totals

logger = logging.getLogger(__name__)


class SessionLog:
    """Records the life of a session; `closed` takes effect once, however the session ends."""

    def __init__(self, metrics: Metrics, client: Client) -> None:
        self._metrics = metrics
        self._client = client
        self._began_s = monotonic()
        self._before: Totals | None = None
        self._totals: Totals | None = None
        self._done = False

    def opened(self, name: str, totals: Totals, **fields: object) -> None:
        """The session has a name and accepts audio; the fields describe its options.

        The totals are those of the sessions that it resumes, which have logged them already.
        """
        self._before = totals
        session_id.set(name)
        self._metrics.opened.inc()
        logger.info("session opened", extra={"fields": {"client": self._client.name, **fields}})

    def ended(self, totals: Totals) -> None:
        """No more audio is accepted; the totals are final."""
        self._totals = totals

    def closed(self, reason: str) -> None:
        """The socket is closed: `stop`, `draining`, `vanished`, or an error code.

        Only the first call counts. An error before a session is open counts as a refusal.
        """
        if self._done:
            return
        self._done = True
        about: dict[str, object] = {
            "reason": reason,
            "client": self._client.name,
            "duration_s": round(monotonic() - self._began_s, 3),
        }
        if self._before is None:
            if isinstance(reason, ErrorCode):
                self._metrics.refused.labels(reason).inc()
            logger.info("no session opened", extra={"fields": about})
            return
        if (totals := self._totals) is not None:
            before = self._before
            about |= {
                "audio_s": round(totals.audio_s - before.audio_s, 3),
                "frames": totals.frames - before.frames,
                "notes": totals.notes - before.notes,
                "dropped_samples": totals.dropped_samples,
            }
            self._metrics.dropped_samples.inc(totals.dropped_samples)
        self._metrics.closed.labels(reason).inc()
        logger.info("session closed", extra={"fields": about})
