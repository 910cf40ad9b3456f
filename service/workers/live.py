"""A live session as the service sees it: what its worker was given, so that another can go on."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import replace

from model.config import ModelConfig
from service.audio.resample import RateRatio
from service.notes.score import Kept
from service.protocol.faults import ProtocolError, internal_error
from service.protocol.server_messages import DoneReason
from service.stream.windows import WindowSchedule
from service.workers.link import Link
from service.workers.messages import Drop, End, Flush, Known, Open, Refused, Said

MAX_BUFFERED_S = 2.0
"""Audio of a session that may await transcription."""

_MOST_SAID = 256
"""Groups of messages that a slow client has not read."""

_MOST_FLUSHES = 64
"""Of a session that await their answers."""

_MOST_MOVES = 3
"""Workers that may end under a session between two checkpoints before it is to blame."""


class Session:
    """A live session, wherever it is computed. Used from the event loop.

    The audio since the last checkpoint is kept. If the worker ends, another one opens the session
    at that checkpoint and is given this audio: it says what the first would have said next.
    """

    def __init__(self, opening: Open, config: ModelConfig) -> None:
        """config: of the model, which decides when a window is complete."""
        self._opening = opening
        self._schedule = WindowSchedule.of(opening.options, config)
        self._ratio = RateRatio.of(opening.audio.sample_rate_hz, config.sample_rate)
        self._frame_bytes = opening.audio.frame_bytes
        self._most = int(MAX_BUFFERED_S * opening.audio.byte_rate)
        self._first = opening.checkpoint.from_sample if opening.checkpoint else 0
        self._held: list[bytes] = []  # audio that completes no window: a worker need not wake
        # Complete in what was passed on: the first audio is at once, and may be found to be none.
        self._windows = -1
        self._link: Link | None = None
        self._log: deque[bytes | Flush] = deque()  # what came since the checkpoint
        self._log_from = 0  # byte of the session's audio at which the log begins
        self._fed_from = 0  # the same, of what the present worker was given
        self._fed = self._taken = 0  # bytes, from the beginning
        self._flushed = 0  # answers by the present worker
        self._unanswered = 0  # `Flush` in the log
        self._end: End | None = None
        self._known = Known(
            messages=0, checkpoint=None, skip=opening.known_events, score=Kept(), heat_frame=0
        )
        self._moves = 0
        self._said: deque[Said] = deque()
        self._news = asyncio.Event()
        self._room = asyncio.Event()
        self._fault: Exception | None = None  # why nothing more will be said

    @property
    def stream(self) -> int:
        return self._opening.stream

    @property
    def windows_per_hop(self) -> float:
        return 1 / self._opening.options.frames_per_window

    # -- for the socket ---------------------------------------------------------------------------

    @property
    def full(self) -> bool:
        """Whether too much awaits transcription, or the client: it is not read meanwhile."""
        return (
            self._fed - self._taken > self._most
            or self._unanswered >= _MOST_FLUSHES
            or len(self._said) > _MOST_SAID
        )

    async def room(self) -> None:
        """Wait until it is not full."""
        while self.full:
            self._room.clear()
            await self._room.wait()

    def send(self, data: bytes) -> None:
        """Take audio, and pass it on once it completes a window."""
        self._fed += len(data)
        self._held.append(data)
        received = self._first + self._fed // self._frame_bytes
        windows = self._schedule.complete(self._ratio.outputs(received))
        if windows > self._windows:
            self._windows = windows
            self._pass_on()

    def _pass_on(self) -> None:
        if not self._held:
            return
        data = b"".join(self._held)
        self._held.clear()
        self._log.append(data)
        if self._link is not None:
            self._link.send_audio(self.stream, data)

    def flush(self, name: str) -> None:
        """Ask for `flushed` once all earlier audio has been transcribed."""
        self._pass_on()
        flush = Flush(self.stream, name)
        self._unanswered += 1
        self._log.append(flush)
        if self._link is not None:
            self._link.send(flush)

    def end(self, reason: DoneReason, error: ProtocolError | None = None) -> None:
        """No more audio comes."""
        if self._end is None:
            self._pass_on()
            self._end = End(self.stream, reason, (error.code, error.message) if error else None)
            if self._link is not None:
                self._link.send(self._end)

    async def said(self) -> Said:
        """The next messages for the client.

        Raises ProtocolError if the session could not be opened, or cannot go on, and what it was
        given up with.
        """
        while not self._said:
            if self._fault is not None:
                raise self._fault
            self._news.clear()
            await self._news.wait()
        self._room.set()
        return self._said.popleft()

    def give_up(self, error: Exception) -> None:
        """Nothing more will be said: ``said`` raises this."""
        self._fault = error
        self._news.set()

    # -- for the pool -----------------------------------------------------------------------------

    def move_to(self, link: Link) -> None:
        """Open the session in this worker, and give it the audio that is kept."""
        opening, known = self._opening, self._known
        self._link = link
        self._flushed = 0
        self._fed_from = self._log_from
        if known.messages:
            self._fed_from = self._checkpoint_byte
            opening = replace(opening, known=known)
        link.send(opening)
        skipped = self._fed_from - self._log_from
        for item in self._log:
            if isinstance(item, Flush):
                link.send(item)
            else:
                link.send_audio(self.stream, item[skipped:])
                skipped = max(0, skipped - len(item))
        if self._end is not None:
            link.send(self._end)

    def lost(self) -> bool:
        """Its worker has ended; returns whether the session may be moved to another."""
        self._link = None
        self._moves += 1
        if self._moves < _MOST_MOVES:
            return True
        self.give_up(internal_error())
        return False

    def heard(self, message: Said | Refused) -> None:
        """What the present worker says."""
        if isinstance(message, Refused):
            self.give_up(ProtocolError(message.code, message.message))
            return
        self._taken = self._fed_from + message.taken_bytes
        self._room.set()
        known = self._known
        if message.score is not None:
            known.score.add(message.score)
        self._known = Known(
            messages=known.messages + len(message.texts),
            checkpoint=message.checkpoint or known.checkpoint,
            skip=message.skip if message.checkpoint else known.skip,
            score=known.score,
            heat_frame=message.heat_frame,
        )
        for _ in range(message.flushed - self._flushed):
            self._log.remove(next(item for item in self._log if isinstance(item, Flush)))
        self._unanswered -= message.flushed - self._flushed
        self._flushed = message.flushed
        if message.checkpoint is not None:
            self._moves = 0
            self._forget()
        if message.texts:
            self._said.append(message)
            self._news.set()

    def drop(self) -> None:
        """Nobody waits for it any more."""
        if self._link is not None:
            self._link.send(Drop(self.stream))

    @property
    def _checkpoint_byte(self) -> int:
        """Byte of the session's audio that the last checkpoint needs first."""
        now = self._known.checkpoint.from_sample if self._known.checkpoint else self._first
        return (now - self._first) * self._frame_bytes

    def _forget(self) -> None:
        """Audio that no checkpoint to come will need."""
        needed = self._checkpoint_byte
        while self._log and isinstance(first := self._log[0], bytes):
            if self._log_from + len(first) > needed:
                break
            self._log_from += len(first)
            self._log.popleft()
