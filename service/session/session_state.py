"""The state of a session, and its totals."""

from dataclasses import dataclass
from enum import Enum


class SessionState(Enum):
    OPEN = "open"  # takes audio
    FAILED = "failed"  # takes no more audio; to be finished or aborted
    FINISHED = "finished"  # all frames are out, all notes have ended
    ABORTED = "aborted"  # ended early, all notes have ended


class TooManyNotesError(RuntimeError):
    """A performance has more notes than the session may keep for its MIDI file."""


class SessionStateError(RuntimeError):
    """A call that is not valid in the session's state."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """Counts of a session so far.

    Attributes:
        notes: notes begun.
        frames: frames that have left the engine.
        audio_s: seconds of audio received.
        received_samples: samples taken, per channel, at the sent rate.
        dropped_samples: samples rejected: a bad one and the rest of its chunk.
    """

    notes: int
    frames: int
    audio_s: float
    received_samples: int
    dropped_samples: int
