"""What operators see of a session: a log line at each end, and counters."""

import logging
from time import monotonic

from service.access.clients import Client
from service.ops.logs import session_id
from service.ops.metrics import Metrics
from service.protocol.faults import ErrorCode
from service.protocol.server_messages import Totals
from service.workers.messages import Said

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
        self._fields: dict[str, object] = {}
        self.messages = 0  # sent

    def opening(self, name: str, **fields: object) -> None:
        """The session has a name; the fields describe its options."""
        session_id.set(name)
        self._fields = fields

    def said(self, said: Said) -> None:
        """What the session says: at first that it is open, at last its totals."""
        self.messages += len(said.texts)
        if said.opened is not None:
            # The totals of the sessions that it resumes, which have logged them already.
            self._before = said.opened
            self._metrics.opened.inc()
            fields = {"client": self._client.name, **self._fields}
            logger.info("session opened", extra={"fields": fields})
        if said.ended is not None:
            self._totals = said.ended[2]

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
