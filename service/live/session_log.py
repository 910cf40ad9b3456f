"""What operators see of a session: a log line at each end, and counters."""

import logging
from time import monotonic

from service.access.problems import record_refusal
from service.ops.logs import session_id
from service.ops.metrics import Metrics
from service.protocol.faults import ProtocolError
from service.protocol.server_messages import Totals
from service.workers.messages import Said

logger = logging.getLogger(__name__)


class SessionLog:
    """Records the life of a session; `closed` takes effect once, however the session ends. An event
    is late by its own audio: a sample arrives when it is received, but never before the earlier
    ones have played, so a stream sent faster than real time is not late because it waits."""

    def __init__(self, metrics: Metrics, client: str) -> None:
        self._metrics = metrics
        self._client = client
        self._began_s = monotonic()
        self._before: Totals | None = None
        self._totals: Totals | None = None
        self._done = False
        self._fields: dict[str, object] = {}
        self._audio_s = metrics.audio_s.labels("live")
        self._arrived_s, self._end_s = 0.0, monotonic()  # of the audio, and when its end was played
        self.messages = 0  # sent

    def opening(self, name: str, begin_s: float, **fields: object) -> None:
        """The session has a name; its audio begins there; the fields describe its options."""
        session_id.set(name)
        self._arrived_s = begin_s
        self._fields = fields

    def arrived(self, duration_s: float) -> None:
        """The next seconds of audio have been received."""
        self._audio_s.inc(duration_s)
        self._end_s = max(self._end_s, monotonic()) + duration_s
        self._arrived_s += duration_s

    def said(self, said: Said) -> None:
        """What the session says: at first that it is open, at last its totals."""
        metrics = self._metrics
        self.messages += len(said.texts)
        metrics.notes.inc(said.note_ons)
        metrics.behind_s.observe(said.behind_s)
        now_s = monotonic()
        for due_s in said.due_s:
            played_s = self._end_s - (self._arrived_s - due_s)
            metrics.event_lateness_s.observe(max(0.0, now_s - played_s))
        if said.opened is not None:
            # The totals of the sessions that it resumes, which have logged them already.
            self._before = said.opened
            metrics.opened.inc()
            fields = {"client": self._client, **self._fields}
            logger.info("session opened", extra={"fields": fields})
        if said.ended is not None:
            self._totals = said.ended[2]

    def failed(self, error: ProtocolError) -> None:
        """Before a session is open this is a refusal."""
        if self._before is None:
            self._done = True
            record_refusal(self._metrics.refused, error, self._client)
        else:
            logger.info("%s: %s", error.code, error.message)

    def closed(self, reason: str) -> None:
        """The socket is closed: `stop`, `draining`, `vanished`, or an error code. Only the first
        call counts, and only if a session was open."""
        if self._done or self._before is None:
            return
        self._done = True
        about: dict[str, object] = {
            "reason": reason,
            "client": self._client,
            "duration_s": round(monotonic() - self._began_s, 3),
        }
        if (totals := self._totals) is not None:
            before = self._before
            about |= {
                "audio_s": round(totals.audio_s - before.audio_s, 3),
                "frames": totals.frames - before.frames,
                "notes": totals.notes - before.notes,
                "dropped_samples": totals.dropped_samples,
            }
        self._metrics.closed.labels(reason).inc()
        logger.info("session closed", extra={"fields": about})
