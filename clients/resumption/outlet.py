"""Events that the caller has yet to read, and the notes that sound for it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Container

from clients.errors import TranscriptionError
from clients.events import Event, SessionEvent
from clients.resumption.sounding import Sounding


class Outlet:
    """Events in order; each ``NoteOn`` is always followed by one ``NoteOff``.

    Args:
        max_events: maximum number of unread events.
        hold_s: how long notes may sound without a connection.
        on_change: called when ``events`` grows without a call.
    """

    def __init__(self, max_events: int, hold_s: float, on_change: Callable[[], None]) -> None:
        self.events: deque[Event] = deque()
        self.sounding = Sounding()
        self._max_events = max_events
        self._hold_s = hold_s
        self._on_change = on_change
        self._holding: asyncio.TimerHandle | None = None

    def put(self, event: Event) -> None:
        """Add an event other than a note; raises TranscriptionError if too many are unread."""
        self._need_room()
        self.events.append(event)

    def follow(self, event: SessionEvent) -> None:
        """Add an event of the service, except the end of a note already ended while held."""
        self._need_room()  # a note that is not passed on does not sound, either
        if self.sounding.follow(event):
            self.events.append(event)

    def keep(self, note_ids: Container[int]) -> None:
        """End all notes except these."""
        self.events.extend(self.sounding.keep(note_ids))

    def hold(self) -> None:
        """The connection is lost: notes may go on sounding for a while."""
        if self.sounding.notes and self._holding is None:
            loop = asyncio.get_running_loop()
            self._holding = loop.call_later(self._hold_s, self.silence)

    def release(self) -> None:
        """The connection is back."""
        if self._holding is not None:
            self._holding.cancel()
            self._holding = None

    def silence(self) -> None:
        """End all notes."""
        self.release()
        self.keep(())
        self._on_change()

    def _need_room(self) -> None:
        if len(self.events) >= self._max_events:
            raise TranscriptionError(f"{len(self.events)} events were not read by the caller")
