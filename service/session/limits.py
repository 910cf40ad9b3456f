"""Limits of a session, and the errors for exceeding them."""

from __future__ import annotations

from dataclasses import dataclass


class BufferFullError(RuntimeError):
    """More audio is waiting for transcription than the session may hold; none was taken."""


class TooManyNotesError(RuntimeError):
    """A performance has more notes than the session may keep for its MIDI file."""

    code = "too_many_notes"


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionLimits:
    """Limits of a session.

    Attributes:
        max_notes: notes kept for the final MIDI file.
        max_waiting_ms: audio of ``push`` calls that wait for an earlier one to end.
        max_pending_windows: windows handed to the engine in one request when audio comes faster
            than real time.
    """

    max_notes: int = 200_000
    max_waiting_ms: float = 10_000.0
    max_pending_windows: int = 4
