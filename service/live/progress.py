"""What a live session sends while it runs: notes, progress, and the heat map behind the notes."""

import asyncio
import base64
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from service.live.inbox import Inbox
from service.live.outbox import Outbox
from service.notes.events import Event, is_update
from service.ops.metrics import Metrics
from service.protocol.client_messages import Checkpoint
from service.protocol.server_messages import Frames, Lagging, Progress
from service.session.session import TranscriptionSession
from service.session.wire import checkpoint_of, event_message
from service.settings import Settings

LOWEST_PITCH = 21
PITCHES = 88  # those of a piano: A0 to C8
_FULL = 255  # the byte of probability 1


class HeatLog:
    """Keeps the probabilities of the frames that a session has computed until they are sent.

    Bounded, because the owner takes them after every push.
    """

    def __init__(self) -> None:
        self._first_frame = self._next = 0
        self._blocks: list[NDArray[np.uint8]] = []

    def begin(self, first_frame: int) -> None:
        """The client has earlier frames from the session that this one resumes."""
        self._first_frame = self._next = first_frame

    def add(self, first_frame: int, probabilities: NDArray[np.float32]) -> None:
        """Adds the next frames, shape [heads, n, 128]; only the first head is used."""
        known = max(0, self._first_frame - first_frame)
        pitches = probabilities[0, known:, LOWEST_PITCH : LOWEST_PITCH + PITCHES]
        if len(pitches):
            self._blocks.append(np.rint(_FULL * pitches.clip(0, 1)).astype(np.uint8))

    def take(self) -> Frames | None:
        if not self._blocks:
            return None
        values = np.concatenate(self._blocks)
        self._blocks = []
        message = Frames(
            frame=self._next,
            count=len(values),
            lowest_pitch=LOWEST_PITCH,
            pitches=PITCHES,
            probabilities_base64=base64.b64encode(values.tobytes()).decode(),
        )
        self._next += len(values)
        return message


@dataclass(kw_only=True)
class ProgressReporter:
    """Puts notes and progress into the outbox, in an order that a client can resume from.

    The checkpoint of a `progress` covers exactly the notes sent before it. One follows each note
    immediately, so that a client whose connection breaks has little audio to send again.
    """

    session: TranscriptionSession
    session_id: str
    inbox: Inbox
    outbox: Outbox
    settings: Settings
    metrics: Metrics
    known_events: int  # first ones, that the client already has
    updates: bool  # whether to send corrected instruments and pedal events
    heat: HeatLog | None  # probabilities to send

    def __post_init__(self) -> None:
        self._point = self.session.point
        self._lock = asyncio.Lock()
        self._sent: tuple[int, int, float] | None = None

    @property
    def checkpoint(self) -> Checkpoint:
        """Where a client could resume that has received everything sent."""
        return checkpoint_of(self.session_id, self._point)

    async def events(self, events: list[Event], last: bool = False) -> None:
        """Sends the events of a push, followed by progress; after the last nothing can resume."""
        async with self._lock:
            if self.heat is not None and (frames := self.heat.take()) is not None:
                await self.outbox.put(frames)
            await self._put_notes(events)
            if self.known_events == 0 and not last:
                self._point = self.session.point
                if events:
                    await self._put_progress()

    async def report(self) -> None:
        """Sends progress every `progress_interval_ms`; does not return."""
        lagging = False
        while True:
            await asyncio.sleep(self.settings.progress_interval_ms / 1000)
            behind_ms = self._behind_ms
            self.metrics.behind_s.observe(behind_ms / 1000)
            if behind_ms > self.settings.lagging_ms and not lagging:
                lagging = True
                self.metrics.lagging.inc()
                await self.outbox.put(Lagging(behind_ms=behind_ms))
            elif behind_ms < self.settings.lagging_ms / 2:
                lagging = False  # sent again only after the session has caught up
            async with self._lock:
                if self.known_events == 0 and self._state != self._sent:
                    await self._put_progress()

    async def _put_notes(self, events: list[Event]) -> None:
        for event in events:
            if is_update(event) and not self.updates:
                continue
            if self.known_events:
                self.known_events -= 1
                continue
            if event.kind == "note_on":
                self.metrics.notes.inc()
            if event.kind != "note_update":  # which has no time of its own
                self.metrics.event_lateness_s.observe(self._lateness_s(event))
            await self.outbox.put(event_message(event))

    async def _put_progress(self) -> None:
        self._sent = received_samples, frames, behind_ms = self._state
        await self.outbox.put(
            Progress(
                received_samples=received_samples,
                frames=frames,
                time_s=round(frames * self.session.frame_s, 6),
                behind_ms=behind_ms,
                checkpoint=self.checkpoint,
            )
        )

    def _lateness_s(self, event: Event) -> float:
        """Seconds since the event could first have been sent."""
        delay = self.session.delay
        delay_ms = delay.note_off_ms if event.kind == "note_off" else delay.note_on_ms
        known_ms = 1000 * event.time_s + delay_ms
        end_ms = 1000 * self.session.totals.audio_s + self.inbox.queued_ms
        return self.inbox.arrivals.age_s((end_ms - known_ms) / 1000)

    @property
    def _state(self) -> tuple[int, int, float]:
        return self.session.totals.received_samples, self._point.frames, self._behind_ms

    @property
    def _behind_ms(self) -> float:
        return round(self.inbox.queued_ms + self.session.behind_ms, 1)
