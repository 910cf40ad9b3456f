"""Limits of a session, and the error for exceeding them."""

from __future__ import annotations

from dataclasses import dataclass


class TooManyNotesError(RuntimeError):
    """A performance has more notes than the session may keep for its MIDI file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionLimits:
    """Limits of a session.

    Attributes:
        max_notes: notes kept for the final MIDI file.
        max_pending_windows: windows handed to the engine in one request when audio comes faster
            than real time.
    """

    max_notes: int = 200_000
    max_pending_windows: int = 4
