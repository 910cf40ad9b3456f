"""Writes the log lines and the metrics of a session."""

import logging
from time import monotonic

from service.access.problems import record_rejection
from service.ops.logs import session_id
from service.ops.metrics import Metrics
from service.protocol.errors import ProtocolError
from service.protocol.server_messages import Totals
from service.stream.session import SessionOutput

logger = logging.getLogger(__name__)


class SessionLog:
    """Log and metrics of a session.

    The lateness of an event is the time since playback would have reached the event's deadline in
    the audio. Playback of a chunk starts when the chunk arrives, or when all earlier audio has been
    played, whichever is later. Sending faster than real time therefore does not make events late.
    """

    def __init__(self, metrics: Metrics, client: str) -> None:
        self._metrics = metrics
        self._client = client
        self._opened_s = monotonic()
        self._initial_totals: Totals | None = None
        self._totals: Totals | None = None
        self._done = False
        self._fields: dict[str, object] = {}
        self._audio_s = metrics.audio_s.labels("live")
        self._arrived_s = 0.0  # end of the received audio, in seconds of the performance
        self._end_s = monotonic()  # clock time at which playback would reach this end
        self.messages = 0  # number of messages sent

    def opening(self, name: str, start_s: float, **fields: object) -> None:
        """Set the session's ID, the start of its audio in s, and its options."""
        session_id.set(name)
        self._arrived_s = start_s
        self._fields = fields

    def record_audio(self, duration_s: float) -> None:
        self._audio_s.inc(duration_s)
        self._end_s = max(self._end_s, monotonic()) + duration_s
        self._arrived_s += duration_s

    def record_output(self, output: SessionOutput) -> None:
        """Record an output of the session. The first output marks the session as open."""
        metrics = self._metrics
        self.messages += len(output.messages)
        metrics.notes.inc(output.note_ons)
        metrics.behind_s.observe(output.behind_s)
        now_s = monotonic()
        for due_s in output.event_deadlines_s:
            played_s = self._end_s - (self._arrived_s - due_s)
            metrics.event_lateness_s.observe(max(0.0, now_s - played_s))
        if output.initial_totals is not None:
            # Earlier sessions of the performance have already logged these totals.
            self._initial_totals = output.initial_totals
            metrics.opened.inc()
            fields = {"client": self._client, **self._fields}
            logger.info("session opened", extra={"fields": fields})
        if output.final_state is not None:
            self._totals = output.final_state[2]

    def failed(self, error: ProtocolError) -> None:
        """Record an error. An error before the session is open counts as a rejection."""
        if self._initial_totals is None:
            self._done = True
            record_rejection(self._metrics.refused, error, self._client)
        else:
            logger.info("%s: %s", error.code, error.message)

    def closed(self, reason: str) -> None:
        """Record the end of a session that is open. Later calls have no effect. reason: `stop`,
        `draining`, `vanished`, `cancelled` or an error code."""
        if self._done or self._initial_totals is None:
            return
        self._done = True
        fields: dict[str, object] = {
            "reason": reason,
            "client": self._client,
            "duration_s": round(monotonic() - self._opened_s, 3),
        }
        if (totals := self._totals) is not None:
            before = self._initial_totals
            fields |= {
                "audio_s": round(totals.audio_s - before.audio_s, 3),
                "frames": totals.frames - before.frames,
                "notes": totals.notes - before.notes,
                "dropped_samples": totals.dropped_samples,
            }
        self._metrics.closed.labels(reason).inc()
        logger.info("session closed", extra={"fields": fields})
