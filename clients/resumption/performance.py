"""A performance over several sessions: samples, frames and notes counted across all of them."""

import base64

from clients.connection.backlog import Backlog
from clients.errors import TranscriptionError
from clients.events import Connected, Gap
from clients.midi.notes import NoteList
from clients.resumption.event_queue import EventQueue
from service.protocol.client_messages import Checkpoint, Resume, Start
from service.protocol.server_messages import Done, Lagging, Progress, Ready, SessionEvent


class Part:
    """Turns the service's counts into those of the performance, and knows how to resume.

    A performance has a single part unless audio is lost.
    """

    def __init__(self, origin: int, first_note: int, sample_rate: int, ready: Ready) -> None:
        """It begins at the sample ``origin`` of the performance, with the note ``first_note``."""
        self._origin = origin
        self._first_note = first_note
        shift_s = origin / sample_rate
        frames = round(shift_s * ready.frame_rate_hz)
        self._shifts = {
            "note_id": first_note,
            "frame": frames,
            "frames": frames,
            "received_samples": origin,
            "time_s": shift_s,
        }
        self._samples_a_frame = sample_rate / ready.frame_rate_hz
        self._checkpoint: Checkpoint = ready.checkpoint
        self._known_events = 0

    @property
    def needed(self) -> int:
        """The first sample that a resumed session needs again."""
        return self._origin + self._checkpoint.from_sample

    @property
    def decided(self) -> int:
        """Samples up to which all events have been received."""
        return self._origin + round(self._checkpoint.frames * self._samples_a_frame)

    @property
    def sounding(self) -> set[int]:
        """Notes that sound at the latest resume point."""
        return {self._first_note + note.note_id for note in self._checkpoint.sounding}

    @property
    def resume(self) -> Resume:
        """For the ``start`` of a session that resumes this part."""
        return Resume(**self._checkpoint.model_dump(), known_events=self._known_events)

    def hear(self, message: SessionEvent) -> SessionEvent:
        """Process a message of the session; return it in the counts of the performance."""
        match message:
            case Lagging():
                return message
            case Progress():
                self._checkpoint = message.checkpoint
                self._known_events = 0
            case _:
                self._known_events += 1
        moved = {
            name: getattr(message, name) + shift
            for name, shift in self._shifts.items()
            if name in type(message).model_fields
        }
        # Message numbers hold only within a session.
        return message.model_copy(update={**moved, "seq": 0})


class Performance:
    """Follows successive sessions, passes on their events and knows where the next continues."""

    def __init__(self, options: Start, audio: Backlog, queue: EventQueue) -> None:
        """What no session will need again is dropped from ``audio``; events go to ``queue``."""
        self.ready: Ready | None = None  # of the latest session
        self.notes = NoteList()
        self.lost_samples = 0  # per channel: dropped and never transcribed
        self.sessions = 0
        self._options = options
        self._audio = audio
        self._queue = queue
        self._part: Part | None = None
        self._ended_at = 0  # samples covered by the parts that have ended

    @property
    def options(self) -> Start:
        """Options for the next session; one that resumes a part takes those accepted for it."""
        if self._part is None or self.ready is None:
            return self._options
        taken = {"mode", "lookahead_ms", "block_frames", "model"}
        return self._options.model_copy(update={name: getattr(self.ready, name) for name in taken})

    @property
    def resumable(self) -> bool:
        return self._part is not None

    @property
    def needed(self) -> int:
        """The first sample to send to a session that has begun."""
        assert self._part is not None
        return self._part.needed

    @property
    def decided(self) -> int:
        return self._part.decided if self._part else self._ended_at

    def resume(self) -> Resume | None:
        """For the ``start`` of the next session; None if it resumes nothing."""
        if self._part is not None and self._part.needed < self._audio.start:
            self.end_part()  # audio was dropped, so the part cannot be resumed
        return self._part.resume if self._part else None

    def hear(self, message: Ready | SessionEvent) -> None:
        if isinstance(message, Ready):
            self._begin(message)
            return
        assert self._part is not None
        event = self._part.hear(message)
        self.notes.event(event)
        self._queue.follow(event)
        if isinstance(event, Progress):
            self._audio.release(self._part.needed)
            self._queue.keep(self._part.sounding)

    def _begin(self, ready: Ready) -> None:
        self.ready = ready
        self.notes.programs = ready.instruments or {}
        self.sessions += 1
        resumed = self._part is not None
        if self._part is None:
            origin = max(self._audio.start, self.decided)
            lost = origin - self.decided
            self._part = Part(origin, len(self.notes.notes), self._options.sample_rate, ready)
            if lost:
                self.lost_samples += lost
                gap = Gap(lost_samples=lost, time_s=origin / self._options.sample_rate)
                self._queue.put(gap)
        self._queue.release()
        self._queue.put(Connected(ready=ready, resumed=resumed))
        if self.notes.pedal_down:  # the queue may have released it since
            self._queue.follow(self._queue.pedal(down=True))

    def end_part(self) -> None:
        """End the part, which nothing resumes, and what sounds."""
        if self._part is not None:
            self._ended_at = self._part.decided
            self._part = None
        for note in self.notes.sounding:
            self.notes.event(self._queue.off(note.note_id, note.pitch))
        if self.notes.pedal_down:
            self.notes.event(self._queue.pedal(down=False))
        self._queue.silence()

    def whole(self, done: Done) -> Done:
        """The last session's ``done``, with the counts of the whole performance."""
        if self.sessions == 1:
            return done
        samples = self._audio.end
        totals = done.totals.model_copy(
            update={
                "notes": len(self.notes.notes),
                "received_samples": samples,
                "audio_s": samples / self._options.sample_rate,
            }
        )
        midi = base64.b64encode(self.notes.midi()).decode()
        return done.model_copy(update={"totals": totals, "midi_base64": midi})

    def failed(self, failure: TranscriptionError) -> TranscriptionError:
        """The failure that ends the performance, with its result so far."""
        if failure.done is not None:
            failure.done = self.whole(failure.done)
        return failure
