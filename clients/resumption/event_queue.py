"""Events that the caller has yet to read, and what sounds for it: each note ends once."""

import asyncio
from collections import deque
from collections.abc import Callable, Container

from clients.events import Event
from service.protocol.server_messages import (
    NoteOff,
    NoteOn,
    NoteUpdate,
    Pedal,
    Progress,
    SessionEvent,
)


class EventQueue:
    """Events in order; each ``NoteOn`` is always followed by one ``NoteOff``, and the press of the
    pedal by its release.

    Args:
        max_events: maximum number of unread events; the oldest are dropped.
        hold_s: how long notes may sound, and the pedal be down, without a connection.
        on_change: called when ``events`` grows without a call.
    """

    def __init__(self, max_events: int, hold_s: float, on_change: Callable[[], None]) -> None:
        self.events: deque[Event] = deque()
        self.time_s = 0.0  # the latest time of any event, in seconds of the audio sent
        self.dropped = 0  # events that were not read in time
        self._frame = 0
        self._notes: dict[int, NoteOn] = {}
        self._pedal_down = False
        self._max_events = max_events
        self._hold_s = hold_s
        self._on_change = on_change
        self._holding: asyncio.TimerHandle | None = None

    def put(self, event: Event) -> None:
        if self.events and len(self.events) >= self._max_events:
            self.events.popleft()
            self.dropped += 1
        self.events.append(event)

    def follow(self, event: SessionEvent) -> None:
        """Add an event of the service, except the end of a note already ended while held, or a move
        of the pedal to where it is."""
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
            case Pedal():
                if event.down == self._pedal_down:
                    return
                self._pedal_down = event.down
                self._reach(event.frame, event.time_s)
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

    def pedal(self, down: bool) -> Pedal:
        """A move of the pedal at the latest known time."""
        return Pedal(down=down, frame=self._frame, time_s=self.time_s)

    def _reach(self, frame: int, time_s: float) -> None:
        self._frame = max(self._frame, frame)
        self.time_s = max(self.time_s, time_s)

    def hold(self) -> None:
        """The connection is lost: what sounds may go on for a while."""
        if (self._notes or self._pedal_down) and self._holding is None:
            loop = asyncio.get_running_loop()
            self._holding = loop.call_later(self._hold_s, self.silence)

    def release(self) -> None:
        if self._holding is not None:
            self._holding.cancel()
            self._holding = None

    def silence(self) -> None:
        self.release()
        self.keep(())
        self.follow(self.pedal(down=False))
        self._on_change()
