"""What the caller of a client has still to read, and the notes it believes to sound."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Container

from clients.errors import TranscriptionError
from clients.events import Event, Told
from clients.sounding import Sounding


class Outlet:
    """Events in their order; each ``NoteOn`` is followed by one ``NoteOff``, whatever happens.

    Args:
        max_events: more that wait to be read are a fault.
        hold_s: how long notes may sound without a connection.
        on_change: called when ``events`` has grown of itself.
    """

    def __init__(self, max_events: int, hold_s: float, on_change: Callable[[], None]) -> None:
        self.events: deque[Event] = deque()
        self.sounding = Sounding()
        self._max_events = max_events
        self._hold_s = hold_s
        self._on_change = on_change
        self._holding: asyncio.TimerHandle | None = None

    def tell(self, event: Event) -> None:
        """Add what is no note; raises TranscriptionError where too much waits already."""
        self._need_room()
        self.events.append(event)

    def follow(self, event: Told) -> None:
        """Add what the service tells, but for the end of a note that was ended while held."""
        self._need_room()  # a note that is not told of does not sound, either
        if self.sounding.follow(event):
            self.events.append(event)

    def keep(self, note_ids: Container[int]) -> None:
        """End the notes that are none of these."""
        self.events.extend(self.sounding.keep(note_ids))

    def hold(self) -> None:
        """There is no connection: what sounds may go on for a while."""
        if self.sounding.notes and self._holding is None:
            loop = asyncio.get_running_loop()
            self._holding = loop.call_later(self._hold_s, self.silence)

    def release(self) -> None:
        """There is a connection again."""
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
