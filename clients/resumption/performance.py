"""A performance over several sessions: samples, frames and notes counted across all of them."""

import asyncio
import base64
from collections import deque
from collections.abc import Container

from clients.events import Connected, Disconnected, Event, Gap
from clients.midi.notes import ReceivedNotes
from clients.resumption.backlog import Backlog, Changes
from service.protocol.client_messages import Checkpoint, Resume, Start
from service.protocol.server_messages import (
    Beat,
    Done,
    NoteOff,
    NoteOn,
    NoteUpdate,
    Pedal,
    Progress,
    Ready,
    SessionEvent,
)


class ResumablePerformance:
    """Follows successive sessions, reports their events and knows where the next continues.

    Sessions that resume one another are a part of it, counted from its beginning; only lost audio
    makes a performance of several parts. Of the events that are reported, each ``NoteOn`` is always
    followed by one ``NoteOff``, and the press of the pedal by its release, even if a break is so
    long that they come before their time. ``notes`` knows the true ends.

    Attributes:
        options: as the caller chose them.
        ready: of the latest session.
        events: those that the caller has yet to read.
        lost_samples: per channel, dropped and never transcribed.
        decided: samples up to which all events have been received.
        acknowledged: samples that the service has received.
    """

    def __init__(self, options: Start, audio: Backlog, hold_s: float, changes: Changes) -> None:
        """What no session will need again is dropped from ``audio``; hold_s: how long notes may
        sound, and the pedal be down, without a connection."""
        self.options = options
        self.ready: Ready | None = None
        self.notes = ReceivedNotes()
        self.events: deque[Event] = deque()
        self.sessions = 0
        self.lost_samples = 0
        self.decided = 0
        self.acknowledged = 0
        self._audio = audio
        self._hold_s = hold_s
        self._changes = changes
        # Of the part that a session can resume:
        self._checkpoint: Checkpoint | None = None
        self._known_events = 0  # after the checkpoint
        self._origin = self._first_note = 0  # its first sample and note in the performance
        self._shifts: dict[str, float] = {}  # from its counts to those of the performance
        self._samples_a_frame = 0.0
        # What the caller knows:
        self._sounding: dict[int, NoteOn] = {}
        self._pedal_down = False
        self._frame, self._time_s = 0, 0.0  # the latest of all events
        self._holding: asyncio.TimerHandle | None = None

    @property
    def resumable(self) -> bool:
        return self._checkpoint is not None

    @property
    def needed(self) -> int:
        """The first sample to send to a session that has begun."""
        assert self._checkpoint is not None
        return self._origin + self._checkpoint.from_sample

    def start(self) -> Start:
        """For the next session: it resumes the part, if there is one, with the options that were
        accepted for it."""
        if self._checkpoint is not None and self.needed < self._audio.start:
            self.end_part()  # audio was dropped, so the part cannot be resumed
        if self._checkpoint is None or self.ready is None:
            return self.options
        taken = {"mode", "lookahead_ms", "block_frames", "model"}
        accepted = {name: getattr(self.ready, name) for name in taken}
        resume = Resume(**self._checkpoint.model_dump(), known_events=self._known_events)
        return self.options.model_copy(update={**accepted, "resume": resume})

    def hear(self, message: Ready | SessionEvent) -> None:
        """Process a message of the session."""
        if isinstance(message, Ready):
            self._begin(message)
            return
        moved = {
            name: getattr(message, name) + shift
            for name, shift in self._shifts.items()
            if name in type(message).model_fields
        }
        # Message numbers hold only within a session.
        event = message.model_copy(update={**moved, "seq": 0})
        self.notes.event(event)
        self._tell(event)
        if isinstance(event, Progress):
            self._checkpoint = event.checkpoint
            self._known_events = 0
            self.decided = self._origin + round(event.checkpoint.frames * self._samples_a_frame)
            self.acknowledge(event.received_samples)
            self._audio.release(self.needed)
            self._end_notes({self._first_note + n.note_id for n in event.checkpoint.sounding})
        elif not isinstance(event, Beat):
            self._known_events += 1

    def acknowledge(self, samples: int) -> None:
        self.acknowledged = max(self.acknowledged, samples)

    def _begin(self, ready: Ready) -> None:
        resumed = self.resumable
        self.ready = ready
        self.notes.programs = ready.instruments or {}
        self.sessions += 1
        if not resumed:
            self._begin_part(ready)
        self.acknowledged = self.needed
        if self._holding is not None:
            self._holding.cancel()
            self._holding = None
        self._tell(Connected(ready=ready, resumed=resumed))
        if self.notes.pedal_down:  # the caller may know of a release since
            self._tell(self._pedal(down=True))

    def _begin_part(self, ready: Ready) -> None:
        rate = self.options.sample_rate
        self._checkpoint = ready.checkpoint
        self._known_events = 0
        self._origin = max(self._audio.start, self.decided)
        self._first_note = len(self.notes.notes)
        self._samples_a_frame = rate / ready.frame_rate_hz
        shift_s = self._origin / rate
        frames = round(shift_s * ready.frame_rate_hz)
        self._shifts = {
            "note_id": self._first_note,
            "frame": frames,
            "frames": frames,
            "received_samples": self._origin,
            "time_s": shift_s,
        }
        if lost := self._origin - self.decided:
            self.lost_samples += lost
            self._tell(Gap(lost_samples=lost, time_s=shift_s))

    def end_part(self) -> None:
        """End the part, which nothing resumes, and what sounds."""
        self._checkpoint = None
        for note in self.notes.sounding:
            self.notes.event(self._off(note.note_id, note.pitch))
        if self.notes.pedal_down:
            self.notes.event(self._pedal(down=False))
        self._silence()

    # -- what the caller hears ---------------------------------------------------------------------

    def lost(self, event: Disconnected) -> None:
        """The connection is lost: what sounds may go on for a while."""
        if (self._sounding or self._pedal_down) and self._holding is None:
            loop = asyncio.get_running_loop()
            self._holding = loop.call_later(self._hold_s, self._silence)
        self._tell(event)

    def _tell(self, event: Event) -> None:
        """Tell an event, unless its note has been ended, or the pedal is where it moves to."""
        match event:
            case NoteOn():
                self._sounding[event.note_id] = event
            case NoteOff():
                if self._sounding.pop(event.note_id, None) is None:
                    return
            case NoteUpdate() if event.note_id not in self._sounding:
                return
            case Pedal():
                if event.down == self._pedal_down:
                    return
                self._pedal_down = event.down
        if isinstance(event, NoteOn | NoteOff | Pedal | Progress):
            frame = event.frames if isinstance(event, Progress) else event.frame
            self._frame = max(self._frame, frame)
            self._time_s = max(self._time_s, event.time_s)
        self.events.append(event)
        self._changes.notify()

    def _off(self, note_id: int, pitch: int) -> NoteOff:
        """The end of a note at the latest known time."""
        return NoteOff(note_id=note_id, pitch=pitch, frame=self._frame, time_s=self._time_s)

    def _pedal(self, down: bool) -> Pedal:
        """A move of the pedal at the latest known time."""
        return Pedal(down=down, frame=self._frame, time_s=self._time_s)

    def _end_notes(self, but: Container[int] = ()) -> None:
        for note in list(self._sounding.values()):
            if note.note_id not in but:
                self._tell(self._off(note.note_id, note.pitch))

    def _silence(self) -> None:
        self._end_notes()
        self._tell(self._pedal(down=False))

    # -- its result ------------------------------------------------------------------------------

    def whole(self, done: Done) -> Done:
        """The last session's ``done``, with the counts of the whole performance."""
        if self.sessions == 1:
            return done
        samples = self._audio.end
        totals = done.totals.model_copy(
            update={
                "notes": len(self.notes.notes),
                "received_samples": samples,
                "audio_s": samples / self.options.sample_rate,
            }
        )
        midi = base64.b64encode(self.notes.midi()).decode()
        return done.model_copy(update={"totals": totals, "midi_base64": midi})
