"""Events that the caller has yet to read, and the notes that sound for it: each ends once."""

import asyncio
from collections import deque
from collections.abc import Callable, Container

from clients.events import Event, SessionEvent
from service.protocol.server_messages import NoteOff, NoteOn, NoteUpdate, Progress


class EventQueue:
    """Events in order; each ``NoteOn`` is always followed by one ``NoteOff``.

    Args:
        max_events: maximum number of unread events; the oldest are dropped.
        hold_s: how long notes may sound without a connection.
        on_change: called when ``events`` grows without a call.

    Attributes:
        time_s: the latest time of any event, in seconds of the audio sent.
        dropped: number of events that were not read in time.
    """

    def __init__(self, max_events: int, hold_s: float, on_change: Callable[[], None]) -> None:
        self.events: deque[Event] = deque()
        self.time_s = 0.0
        self.dropped = 0
        self._frame = 0
        self._notes: dict[int, NoteOn] = {}
        self._max_events = max_events
        self._hold_s = hold_s
        self._on_change = on_change
        self._holding: asyncio.TimerHandle | None = None

    def put(self, event: Event) -> None:
        """Add an event."""
        if self.events and len(self.events) >= self._max_events:
            self.events.popleft()
            self.dropped += 1
        self.events.append(event)

    def follow(self, event: SessionEvent) -> None:
        """Add an event of the service, except the end of a note already ended while held."""
        match event:
            case NoteOn():
                self._notes[event.note_id] = event
                self._reach(event.frame, event.time_s)
            case NoteOff():
                if self._notes.pop(event.note_id, None) is None:
                    return
                self._reach(event.frame, event.time_s)
            case NoteUpdate() if event.note_id not in self._notes:
                return
            case Progress():
                self._reach(event.frames, event.time_s)
        self.put(event)

    def keep(self, note_ids: Container[int]) -> None:
        """End all notes except these, at the latest known time."""
        for note in [note for note in self._notes.values() if note.note_id not in note_ids]:
            del self._notes[note.note_id]
            self.put(self.off(note.note_id, note.pitch))

    def off(self, note_id: int, pitch: int) -> NoteOff:
        """The end of a note at the latest known time."""
        return NoteOff(note_id=note_id, pitch=pitch, frame=self._frame, time_s=self.time_s)

    def _reach(self, frame: int, time_s: float) -> None:
        self._frame = max(self._frame, frame)
        self.time_s = max(self.time_s, time_s)

    def hold(self) -> None:
        """The connection is lost: notes may go on sounding for a while."""
        if self._notes and self._holding is None:
            loop = asyncio.get_running_loop()
            self._holding = loop.call_later(self._hold_s, self.silence)

    def release(self) -> None:
        if self._holding is not None:
            self._holding.cancel()
            self._holding = None

    def silence(self) -> None:
        self.release()
        self.keep(())
        self._on_change()
