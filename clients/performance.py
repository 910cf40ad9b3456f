"""A performance over several sessions: every note begins and ends once, and live audio is kept as
long as it may be needed again."""

import asyncio
import base64
from collections import deque
from collections.abc import Callable, Container

from clients.events import Connected, ConnectionLostError, Event, Gap
from clients.midi import ReceivedNotes
from service.protocol.client_messages import Checkpoint, Resume, Start
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


class Notifier:
    """Like ``asyncio.Condition``, but notifying needs no ``await``."""

    def __init__(self) -> None:
        self._changed = asyncio.Event()

    def notify(self) -> None:
        """Wake all waiting tasks to check again."""
        self._changed.set()
        self._changed.clear()

    async def until(self, holds: Callable[[], bool]) -> None:
        while not holds():
            await self._changed.wait()


class AudioBuffer:
    """PCM between the device and the service, addressed by sample number from the first ever added:
    ``start`` is the oldest that is kept, ``position`` the next to read. Beyond ``max_samples`` the
    oldest is dropped. ``ended``: no audio will be added."""

    def __init__(self, pcm_frame_bytes: int, max_samples: int) -> None:
        self.pcm_frame_bytes = pcm_frame_bytes
        self.max_samples = max_samples
        self.start = self.position = 0
        self.ended = False
        self.notifier = Notifier()
        self._pcm = bytearray()

    @property
    def end(self) -> int:
        """Samples that have ever been added."""
        return self.start + len(self._pcm) // self.pcm_frame_bytes

    def put(self, pcm: bytes) -> None:
        """Append a block of whole samples."""
        self._pcm += pcm
        self.release(self.end - self.max_samples)
        self.notifier.notify()

    def finish(self) -> None:
        self.ended = True
        self.notifier.notify()

    def release(self, before: int) -> None:
        """Forget the audio before a sample."""
        gone = max(0, before - self.start)
        del self._pcm[: gone * self.pcm_frame_bytes]
        self.start += gone

    async def read(self, max_samples: int) -> bytes | None:
        """The next audio; waits for it. None at the end of all. Raises ConnectionLostError if that
        audio has been dropped."""
        await self.notifier.until(lambda: self.position < self.end or self.ended)
        if self.position >= self.end:
            return None
        if self.position < self.start:
            dropped = f"sample {self.position} was dropped, {self.start} is the oldest"
            raise ConnectionLostError(f"the service is too slow: {dropped}", retryable=True)
        first = (self.position - self.start) * self.pcm_frame_bytes
        pcm = bytes(self._pcm[first : first + max_samples * self.pcm_frame_bytes])
        self.position += len(pcm) // self.pcm_frame_bytes
        self.notifier.notify()
        return pcm


class ResumablePerformance:
    """Performance of one or more sessions: reports their events, and where the next one continues.

    Sessions that resume one another form one part, whose times count from its start. Lost audio
    starts a new part. Each ``NoteOn`` is always followed by one ``NoteOff``, and each press of the
    pedal by its release.

    Attributes:
        events: those that the caller has yet to read.
        lost_samples: per channel, dropped and never transcribed.
        decided: samples up to which all events have been received.
        acknowledged: samples that the service has received.
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
        # Of the part that a session can resume:
        self._checkpoint: Checkpoint | None = None
        self._known_events = 0  # after the checkpoint
        self._origin = 0  # its first sample in the performance
        self._shifts: dict[str, float] = {}  # from its counts to those of the performance
        self._samples_per_frame = 0.0
        self._frame, self._time_s = 0, 0.0  # the latest of all events

    @property
    def resumable(self) -> bool:
        return self._checkpoint is not None

    @property
    def next_sample(self) -> int:
        """The first sample to send to a session that has begun."""
        assert self._checkpoint is not None
        return self._origin + self._checkpoint.from_sample

    def start(self) -> Start:
        """For the next session: it resumes the part, if there is one, with the options that were
        accepted for it."""
        if self._checkpoint is not None and self.next_sample < self.audio.start:
            self.end_part()  # audio was dropped, so the part cannot be resumed
        if self._checkpoint is None or self.ready is None:
            return self.options
        taken = {"mode", "lookahead_ms", "block_frames", "model"}
        accepted = {name: getattr(self.ready, name) for name in taken}
        resume = Resume(**self._checkpoint.model_dump(), known_events=self._known_events)
        return self.options.model_copy(update={**accepted, "resume": resume})

    def handle(self, message: Ready | SessionEvent) -> None:
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
            first = self._shifts["note_id"]
            self._end_notes({first + note.note_id for note in event.checkpoint.sounding})
        elif not isinstance(event, Beat | InputWarning):
            self._known_events += 1

    def emit(self, event: Event) -> None:
        """Tell the caller of an event, and keep its notes."""
        self.notes.event(event)
        self.events.append(event)
        self.audio.notifier.notify()

    def acknowledge(self, samples: int) -> None:
        self.acknowledged = max(self.acknowledged, samples)

    def _begin(self, ready: Ready) -> None:
        self.ready = ready
        self.notes.programs = ready.instruments or {}
        self.sessions += 1
        if not (resumed := self.resumable):
            self._begin_part(ready)
        self.acknowledged = self.next_sample
        self.emit(Connected(ready=ready, resumed=resumed))

    def _begin_part(self, ready: Ready) -> None:
        rate = self.options.sample_rate
        self._checkpoint = ready.checkpoint
        self._known_events = 0
        self._origin = max(self.audio.start, self.decided)
        self._samples_per_frame = rate / ready.frame_rate_hz
        shift_s = self._origin / rate
        frames = round(shift_s * ready.frame_rate_hz)
        self._shifts = {
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
        """End the part, which nothing resumes, and what sounds, at the latest known time."""
        self._checkpoint = None
        self._end_notes()
        if self.notes.pedal_down:
            self.emit(Pedal(down=False, frame=self._frame, time_s=self._time_s))

    def _end_notes(self, but: Container[float] = ()) -> None:
        frame, time_s = self._frame, self._time_s
        for note in self.notes.sounding:
            if note.note_id not in but:
                off = NoteOff(note_id=note.note_id, pitch=note.pitch, frame=frame, time_s=time_s)
                self.emit(off)

    def merge_done(self, done: Done) -> Done:
        """The last session's ``done``, with the counts of the whole performance."""
        if self.sessions == 1:
            return done
        samples = self.audio.end
        totals = done.totals.model_copy(
            update={
                "notes": len(self.notes.notes),
                "received_samples": samples,
                "audio_s": samples / self.options.sample_rate,
            }
        )
        midi = base64.b64encode(self.notes.midi()).decode()
        return done.model_copy(update={"totals": totals, "midi_base64": midi})
