"""Client that transcribes live audio with the service (clients/README.md has an example).

If the connection breaks, the client reconnects and resumes the transcription, even on another
server. No notes are missing unless the client had to drop audio.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncIterator

from clients.events import Disconnected, Event, ServerError, SessionEndedError, TranscriptionError
from clients.performance import AudioBuffer, ResumablePerformance
from clients.session import Session, websocket_url
from service.protocol.client_messages import Start
from service.protocol.server_messages import Done, Ready

SEND_AHEAD_S = 2.0  # ``send`` waits while more audio than this is unsent
# Maximum duration of the buffered audio. The buffer includes the audio that a resumed session needs
# again (``ready.replay_ms``). ``put`` drops older audio. If it was not transcribed, the client
# emits a ``Gap`` when the next session starts.
MAX_BUFFERED_S = 60.0
# Error codes of a service that cannot resume the session, for example after a change of its model.
NOT_RESUMABLE = ("bad_resume", "unknown_model")
# The delay doubles after each failed attempt. It is randomised, so that the clients of a failed
# server do not all reconnect at the same time.
FIRST_DELAY_S = 0.5
MAX_DELAY_S = 15.0
LAST_ATTEMPTS_S = 15.0  # maximum time without a connection after the end of the audio
MAX_ATTEMPTS_WITHOUT_PROGRESS = 5  # maximum number of consecutive sessions without a new frame


class TranscriptionClient:
    """Transcribes a performance in one session or, if connections break, in several. If the service
    requires an API key, set ``$RSE_KEY``.

    An instance belongs to one event loop. Call ``send`` and ``stop`` from one task at a time.
    Another task may iterate over the events. ``notes`` contains the notes received so far.

    Args:
        options: audio format and transcription options. The client requests corrected instruments
            and pedal events unless the caller sets ``updates`` to False.
        give_up_s: time without a connection after which the client stops retrying. With None, the
            client retries until the end of the audio, and then until it has had no connection for
            LAST_ATTEMPTS_S, or until the next attempt if there was no session.
        stall_timeout_s: time without a message after which the connection counts as lost, if the
            server must send one. Detection takes at most twice as long. After the end of the audio
            it is at least ``session.DONE_TIMEOUT_S``.
    """

    def __init__(
        self,
        url: str,
        options: Start,
        *,
        give_up_s: float | None = 60.0,
        stall_timeout_s: float = 60.0,
    ) -> None:
        if "updates" not in options.model_fields_set:
            options = options.model_copy(update={"updates": True})
        self.options = options
        self._url = websocket_url(url)
        self._audio = AudioBuffer(
            options.audio().pcm_frame_bytes, round(MAX_BUFFERED_S * options.sample_rate)
        )
        self._notifier = self._audio.notifier
        self.performance = ResumablePerformance(options, self._audio)
        self.notes = self.performance.notes
        self._carry = b""  # first bytes of an incomplete PCM frame
        self._give_up_s = give_up_s
        self._stall_timeout_s = stall_timeout_s
        self._performing: asyncio.Task[Done] | None = None
        self._retry_first = True  # True if the client retries the first connection

    @property
    def ready(self) -> Ready | None:
        return self.performance.ready

    @property
    def behind_s(self) -> float:
        """Seconds of audio that are not transcribed yet."""
        return (self._audio.end - self.performance.decided) / self.options.sample_rate

    async def connect(self) -> Ready:
        """Open the first session, without retries. Raises TranscriptionError: a ConnectError if the
        connection fails or is rejected, or a ServerError if the service rejects the options."""
        self._retry_first = False
        self.start()
        await self._notifier.until(lambda: self.ready is not None or self._over)
        if self.ready is None:
            self._raise_if_over()
        assert self.ready is not None
        return self.ready

    def start(self) -> None:
        """Open the first session in the background, with retries."""
        self._performing = asyncio.create_task(self._perform())
        self._performing.add_done_callback(lambda _: self._notifier.notify())

    async def close(self) -> None:
        """Close the session immediately, if there is one. Emit ``NoteOff`` for sounding notes."""
        if self._performing is not None:
            self._performing.cancel()
            await asyncio.gather(self._performing, return_exceptions=True)

    async def __aenter__(self) -> TranscriptionClient:
        try:
            await self.connect()
        except BaseException:  # also CancelledError: the session must not stay open
            await self.close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def sent_samples(self) -> int:
        """Number of complete samples per channel that the caller passed to ``send`` or ``put``."""
        return self._audio.end

    def put(self, pcm: bytes) -> None:
        """Add PCM of any length without waiting, as an audio device requires."""
        data = self._carry + pcm
        complete = len(data) - len(data) % self._audio.pcm_frame_bytes
        self._carry = data[complete:]
        self._audio.put(data[:complete])

    async def send(self, pcm: bytes | memoryview) -> None:
        """Add PCM of any length. Wait while more than SEND_AHEAD_S of audio is unsent. Raises
        TranscriptionError if the transcription has ended."""
        data = memoryview(pcm).cast("B")
        step = round(SEND_AHEAD_S / 8 * self.options.sample_rate) * self._audio.pcm_frame_bytes
        for start in range(0, len(data), step):
            await self._notifier.until(lambda: self._over or self._unsent_s <= SEND_AHEAD_S)
            self._raise_if_over()
            self.put(bytes(data[start : start + step]))

    def finish(self) -> None:
        """End the audio without waiting for the last notes."""
        self._audio.finish()

    async def stop(self) -> Done:
        """End the audio, and wait for the last notes, the totals and the MIDI file. Raises
        TranscriptionError if the service fails or remains unreachable, or if the audio ends in the
        middle of a PCM frame. The error's ``done`` has the notes so far, if the service sent
        them."""
        self.finish()
        await asyncio.wait([self._task])
        if self._task.cancelled():
            raise SessionEndedError("the client was closed before the transcription was complete")
        done = self._task.result()
        if self._carry:
            size = self._audio.pcm_frame_bytes
            reason = "the audio ends in the middle of a PCM frame"
            raise TranscriptionError(f"{reason}: send a multiple of {size} bytes", done=done)
        return done

    @property
    def _unsent_s(self) -> float:
        return (self._audio.end - self._audio.position) / self.options.sample_rate

    @property
    def _task(self) -> asyncio.Task[Done]:
        if self._performing is None:
            raise RuntimeError("the client has not started: call connect() or start() first")
        return self._performing

    @property
    def _over(self) -> bool:
        return self._task.done()

    def _raise_if_over(self) -> None:
        if self._over:
            self._raise_failure()
            raise SessionEndedError("the session has ended")

    def _raise_failure(self) -> None:
        if not self._task.cancelled():
            self._task.result()

    async def __aiter__(self) -> AsyncIterator[Event]:
        """Yield events as they arrive. If the transcription failed, raise TranscriptionError after
        the last event."""
        events = self.performance.events
        while True:
            await self._notifier.until(lambda: bool(events) or self._over)
            if not events:
                break
            yield events.popleft()
        self._raise_failure()

    async def _perform(self) -> Done:
        """Run sessions until one is complete. Return its ``done`` with the totals and notes of all
        sessions. Raises TranscriptionError if the client stops retrying."""
        performance = self.performance
        attempts = 0  # number of attempts since the last progress, which sets the delay
        without_progress = 0  # number of these attempts that connected, which is limited
        lost_at: float | None = None
        try:
            while True:
                sessions, decided = performance.sessions, performance.decided
                try:
                    session = Session(self._url, performance, self._stall_timeout_s)
                    return performance.merge_done(await session.run())
                except TranscriptionError as error:
                    failure = error
                may_retry = failure.retryable and (self._retry_first or performance.sessions > 0)
                not_resumable = isinstance(failure, ServerError) and failure.code in NOT_RESUMABLE
                if not_resumable and performance.is_resumable:
                    performance.end_part()  # the next session starts without resuming
                    may_retry = True
                connected = performance.sessions > sessions
                if connected or lost_at is None:
                    lost_at = time.monotonic()
                if performance.decided > decided:
                    attempts, without_progress = 0, 0
                elif connected:
                    without_progress += 1
                without_s = time.monotonic() - lost_at
                if self._give_up_s is not None:
                    expired = without_s >= self._give_up_s
                else:
                    is_short = performance.sessions > 0 and without_s < LAST_ATTEMPTS_S
                    expired = self._audio.ended and not connected and not is_short
                if not may_retry or expired or without_progress >= MAX_ATTEMPTS_WITHOUT_PROGRESS:
                    if failure.done is not None:
                        failure.done = performance.merge_done(failure.done)
                    raise failure
                delay_s = min(MAX_DELAY_S, FIRST_DELAY_S * 2 ** min(attempts, 9))
                attempts += 1
                await self._pause(failure, delay_s * random.uniform(0.75, 1.25))
        finally:
            performance.end_part()

    async def _pause(self, failure: TranscriptionError, retry_s: float) -> None:
        """Wait until the next attempt, or until the audio ends."""
        self.performance.emit(Disconnected(error=failure, retry_s=retry_s))
        ended = self._audio.ended
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(retry_s):
                await self._notifier.until(lambda: self._audio.ended and not ended)
