"""Where a session stands, and what it has come to."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class SessionState(Enum):
    """Where a session stands."""

    OPEN = "open"  # takes audio
    FAILED = "failed"  # takes no more audio; to be finished or aborted
    FINISHED = "finished"  # all frames are out, all notes have ended
    ABORTED = "aborted"  # ended early, all notes have ended


class SessionStateError(RuntimeError):
    """A call came in a state in which it has no meaning."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """What a session has done so far.

    Attributes:
        notes: notes begun.
        frames: frames that have left the engine.
        audio_s: seconds of audio received.
        received_samples: samples taken, per channel, at the sent rate.
        dropped_samples: samples refused with a bad one, from it on to the end of its chunk.
    """

    notes: int
    frames: int
    audio_s: float
    received_samples: int
    dropped_samples: int
