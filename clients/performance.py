"""Joins several sessions into one performance. Buffers audio that a new session may need again, and
ensures that every note starts and ends exactly once."""

import asyncio
import base64
from collections import deque
from collections.abc import Callable, Container

from clients.events import Connected, ConnectionLostError, Event, Gap
from clients.midi import ReceivedNotes
from service.protocol.checkpoint import Checkpoint
from service.protocol.client_messages import Start
from service.protocol.server_messages import (
    Beat,
    Done,
    InputWarning,
    NoteOff,
    NoteOn,
    Pedal,
    Progress,
    Ready,
    SessionEvent,
)

# Number of unread events above which further ``Progress`` events, which are large, are dropped.
MAX_UNREAD = 1000


class Notifier:
    """Condition variable. Unlike ``asyncio.Condition``, it can be notified without ``await``."""

    def __init__(self) -> None:
        self._changed = asyncio.Event()

    def notify(self) -> None:
        """Wake all waiting tasks, so that they check their conditions again."""
        self._changed.set()
        self._changed.clear()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until the condition is true."""
        while not condition():
            await self._changed.wait()


class AudioBuffer:
    """Buffer of PCM between the device and the service. Indexes count samples per channel from the
    start of the performance.

    Attributes:
        start: index of the oldest sample.
        position: index of the next sample to read.
        max_samples: maximum number of samples. ``put`` drops older samples.
        ended: True if no more audio follows.
    """

    def __init__(self, pcm_frame_bytes: int, max_samples: int) -> None:
        self.pcm_frame_bytes = pcm_frame_bytes
        self.max_samples = max_samples
        self.start = self.position = 0
        self.ended = False
        self.notifier = Notifier()
        self._pcm = bytearray()

    @property
    def end(self) -> int:
        """Index after the newest sample."""
        return self.start + len(self._pcm) // self.pcm_frame_bytes

    def put(self, pcm: bytes) -> None:
        """Append complete samples."""
        self._pcm += pcm
        self.release(self.end - self.max_samples)
        self.notifier.notify()

    def finish(self) -> None:
        self.ended = True
        self.notifier.notify()

    def release(self, before: int) -> None:
        """Drop the samples before this index."""
        dropped = max(0, before - self.start)
        del self._pcm[: dropped * self.pcm_frame_bytes]
        self.start += dropped

    async def read(self, max_samples: int) -> bytes | None:
        """Wait for the next samples and return at most ``max_samples``, or None at the end of the
        audio. Raises ConnectionLostError if the next sample was dropped."""
        await self.notifier.until(lambda: self.position < self.end or self.ended)
        if self.position >= self.end:
            return None
        if self.position < self.start:
            dropped = f"sample {self.position} was dropped; the oldest is {self.start}"
            raise ConnectionLostError(f"sending is too slow: {dropped}", retryable=True)
        first = (self.position - self.start) * self.pcm_frame_bytes
        pcm = bytes(self._pcm[first : first + max_samples * self.pcm_frame_bytes])
        self.position += len(pcm) // self.pcm_frame_bytes
        self.notifier.notify()
        return pcm


class ResumablePerformance:
    """State of a performance: its events, and the point from which a new session can resume it.

    A part consists of a session and the sessions that resume it. The server's times count from the
    start of a part. After dropped audio a new part starts. Exactly one ``NoteOff`` follows each
    ``NoteOn``, and each press of the pedal is released.

    Attributes:
        events: events that the caller has not read.
        lost_samples: number of samples per channel that were dropped before their transcription.
        decided: number of samples for which the client has received all events.
        acknowledged: number of samples that the service has reported as received.
    """

    def __init__(self, options: Start, audio: AudioBuffer) -> None:
        self.options = options
        self.audio = audio
        self.ready: Ready | None = None
        self.notes = ReceivedNotes()
        self.events: deque[Event] = deque()
        self.sessions = 0
        self.lost_samples = 0
        self.decided = 0
        self.acknowledged = 0
        # State of the current part.
        self._checkpoint: Checkpoint | None = None  # None if there is no part to resume
        self._known_events = 0  # number of events after the checkpoint
        self._origin = 0  # index of the part's first sample in the performance
        self._offsets: dict[str, float] = {}  # added to message fields, by field name
        self._samples_per_frame = 0.0
        self._frame, self._time_s = 0, 0.0  # position of the latest event

    @property
    def is_resumable(self) -> bool:
        return self._checkpoint is not None

    @property
    def next_sample(self) -> int:
        """Index of the first sample that a new session needs."""
        assert self._checkpoint is not None
        return self._origin + self._checkpoint.from_sample

    def start(self) -> Start:
        """Return the ``start`` message of the next session. If there is a current part, the session
        resumes it with the effective options."""
        if self._checkpoint is not None and self.next_sample < self.audio.start:
            self.end_part()  # audio was dropped, so the part cannot be resumed
        if self._checkpoint is None or self.ready is None:
            return self.options
        names = ("mode", "lookahead_ms", "block_frames", "model")
        effective = {name: getattr(self.ready, name) for name in names}
        resume = self._checkpoint.model_copy(update={"known_events": self._known_events})
        return self.options.model_copy(update={**effective, "resume": resume})

    def handle(self, message: Ready | SessionEvent) -> None:
        """Update the state with a message of the current session, and emit its event. The times and
        numbers of the event count from the start of the performance."""
        if isinstance(message, Ready):
            self._start_session(message)
            return
        shifted = {
            name: getattr(message, name) + offset
            for name, offset in self._offsets.items()
            if name in type(message).model_fields
        }
        # `seq` counts the messages of one session only.
        event = message.model_copy(update={**shifted, "seq": 0})
        if isinstance(event, NoteOn | NoteOff | Pedal | Progress):
            frame = event.frames if isinstance(event, Progress) else event.frame
            self._frame = max(self._frame, frame)
            self._time_s = max(self._time_s, event.time_s)
        self.emit(event)
        if isinstance(event, Progress):
            self._checkpoint = event.checkpoint
            self._known_events = 0
            self.decided = self._origin + round(event.checkpoint.frames * self._samples_per_frame)
            self.acknowledge(event.received_samples)
            self.audio.release(self.next_sample)
            first_id = int(self._offsets["note_id"])
            self._end_notes({first_id + note.note_id for note in event.checkpoint.sounding})
        elif not isinstance(event, Beat | InputWarning):
            self._known_events += 1

    def emit(self, event: Event) -> None:
        self.notes.handle(event)
        if not isinstance(event, Progress) or len(self.events) < MAX_UNREAD:
            self.events.append(event)
        self.audio.notifier.notify()

    def acknowledge(self, samples: int) -> None:
        self.acknowledged = max(self.acknowledged, samples)

    def _start_session(self, ready: Ready) -> None:
        self.ready = ready
        self.notes.programs = ready.instruments or {}
        self.sessions += 1
        resumed = self.is_resumable
        if not resumed:
            self._start_part(ready)
        self.acknowledged = self.next_sample
        self.emit(Connected(ready=ready, resumed=resumed))

    def _start_part(self, ready: Ready) -> None:
        rate = self.options.sample_rate
        self._checkpoint = ready.checkpoint
        self._known_events = 0
        self._origin = max(self.audio.start, self.decided)
        self._samples_per_frame = rate / ready.frame_rate_hz
        shift_s = self._origin / rate
        frames = round(shift_s * ready.frame_rate_hz)
        self._offsets = {
            "note_id": len(self.notes.notes),
            "frame": frames,
            "frames": frames,
            "received_samples": self._origin,
            "time_s": shift_s,
        }
        if lost := self._origin - self.decided:
            self.lost_samples += lost
            self.emit(Gap(lost_samples=lost, time_s=shift_s))

    def end_part(self) -> None:
        """End the current part, so that no session resumes it. Its notes end, and the pedal is
        released, at the time of the latest event."""
        self._checkpoint = None
        self._end_notes()
        if self.notes.pedal_down:
            self.emit(Pedal(down=False, frame=self._frame, time_s=self._time_s))

    def _end_notes(self, except_ids: Container[int] = ()) -> None:
        frame, time_s = self._frame, self._time_s
        for note in self.notes.sounding:
            if note.note_id not in except_ids:
                off = NoteOff(note_id=note.note_id, pitch=note.pitch, frame=frame, time_s=time_s)
                self.emit(off)

    def merge_done(self, done: Done) -> Done:
        """Return the last session's ``done`` with the totals and notes of the performance."""
        if self.sessions < 2 and not self._origin:
            return done
        samples = self.audio.end
        totals = done.totals.model_copy(
            update={
                "notes": len(self.notes.notes),
                "frames": done.totals.frames + self._offsets["frames"],
                "received_samples": samples,
                "audio_s": samples / self.options.sample_rate,
            }
        )
        midi = base64.b64encode(self.notes.midi()).decode()
        return done.model_copy(update={"totals": totals, "midi_base64": midi})
