"""The outcome of an upload, for its client and for the metrics."""

from __future__ import annotations

import logging
from typing import Any

from service.access.problems import Problem, busy
from service.audio.decode import DecodeError
from service.audio.pcm import BadAudioError
from service.engine.engine import EngineBusyError
from service.protocol.faults import ErrorCode
from service.protocol.options import SampleRateError
from service.session.limits import TooManyNotesError
from service.session.transcribe import Performance
from service.state import ServiceState

logger = logging.getLogger(__name__)


def as_problem(error: Exception, state: ServiceState, **extra: Any) -> Problem:
    """The problem that a client sees for a fault of the recording or the server."""
    match error:
        case Problem():
            return error
        case DecodeError():
            return Problem(error.code, str(error), **extra)
        case SampleRateError():
            return Problem(ErrorCode.BAD_SAMPLE_RATE, str(error), **extra)
        case BadAudioError():
            return Problem(ErrorCode.BAD_AUDIO, str(error), **extra)
        case TooManyNotesError():
            return Problem(ErrorCode.TOO_MANY_NOTES, str(error), **extra)
        case EngineBusyError():
            later = state.settings.retry_after_s
            return busy(ErrorCode.TOO_MANY_UPLOADS, "the model is overloaded", later)
    logger.error("an upload failed", exc_info=error)
    return Problem(ErrorCode.INTERNAL, "the server failed; this was logged", **extra)


def count(state: ServiceState, performance: Performance | None, problem: Problem | None) -> None:
    """Counts a finished upload in the metrics."""
    outcome = problem.code if problem is not None else "done"
    state.metrics.uploads_ended.labels(outcome).inc()
    if performance is not None:
        state.metrics.audio_s.labels("file").inc(performance.totals.audio_s)
