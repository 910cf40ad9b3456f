"""Transcribe live audio over connections that may break.

The client reconnects automatically, to this or another server, without gaps in the notes. Each
``NoteOn`` is always followed by one ``NoteOff``, and the press of a pedal by its release.
clients/README.md has an example.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncIterator

from clients.events import (
    Disconnected,
    Event,
    ServerError,
    SessionEndedError,
    TranscriptionError,
)
from clients.performance import AudioBuffer, ResumablePerformance
from clients.session import Session, websocket_url
from service.protocol.client_messages import Start
from service.protocol.server_messages import Done, Ready

SEND_AHEAD_S = 2.0  # audio that ``send`` accepts before it waits for the service
MAX_BUFFERED_S = 60.0
"""Audio kept while disconnected, with what a resumption must send again (``ready.replay_ms``).
Beyond that, ``put`` drops the oldest audio and reports a ``Gap``."""
NOT_RESUMABLE = ("bad_resume", "unknown_model")  # the service may have another model by now
# Pauses before each new attempt double, with jitter so that clients do not come at once.
FIRST_DELAY_S = 0.5
MAX_DELAY_S = 15.0
# Consecutive sessions without any new frame before giving up.
MAX_ATTEMPTS_WITHOUT_PROGRESS = 5


class TranscriptionClient:
    """Client that transcribes a performance in one session or, if connections break, in several. If
    the service requires an API key, set ``$RSE_KEY``.

    Args:
        url: address of the service (``clients.session.websocket_url``).
        options: audio format and transcription options. The client requests corrected instruments
            and the pedal unless ``updates`` is set to False.
        give_up_s: time without a connection after which the client stops retrying; None to retry
            as long as audio arrives.
        stall_timeout_s: maximum time without a message while the server owes one.

    Attributes:
        notes: notes so far.
        performance: sessions and gaps.

    An instance belongs to one event loop. Call ``send`` and ``stop`` from one task at a time;
    another task may iterate.
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
            options.pcm_frame_bytes, round(MAX_BUFFERED_S * options.sample_rate)
        )
        self._notifier = self._audio.notifier
        self.performance = ResumablePerformance(options, self._audio)
        self.notes = self.performance.notes
        self._carry = b""  # an incomplete sample
        self._give_up_s = give_up_s
        self._stall_timeout_s = stall_timeout_s
        self._performing: asyncio.Task[Done] | None = None
        self._retry_first = True  # the first session may take several attempts

    @property
    def ready(self) -> Ready | None:
        return self.performance.ready

    @property
    def behind_s(self) -> float:
        """Duration of the audio that was passed in and is not yet transcribed."""
        return (self._audio.end - self.performance.decided) / self.options.sample_rate

    async def connect(self) -> Ready:
        """Open the first session. Raises ConnectError if the service is unreachable or accepts no
        session now (``retryable``), ServerError if it rejects the options."""
        self._retry_first = False
        self.start()
        await self._notifier.until(lambda: self.ready is not None or self._over)
        if self.ready is None:
            self._raise_if_over()
        assert self.ready is not None
        return self.ready

    def start(self) -> None:
        """Open the first session in the background, however many attempts it takes."""
        self._performing = asyncio.create_task(self._perform())
        self._performing.add_done_callback(lambda _: self._notifier.notify())

    async def close(self) -> None:
        """Close the session in any state. Sounding notes get their ``NoteOff``."""
        if self._performing is not None:
            self._performing.cancel()
            await asyncio.gather(self._performing, return_exceptions=True)

    async def __aenter__(self) -> TranscriptionClient:
        try:
            await self.connect()
        except BaseException:  # also if cancelled: otherwise the session would stay open
            await self.close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def sent_samples(self) -> int:
        """Complete samples per channel passed to ``send`` or ``put``."""
        return self._audio.end

    def put(self, pcm: bytes) -> None:
        """Add audio of any length without waiting; for audio devices."""
        data = self._carry + pcm
        whole = len(data) - len(data) % self.options.pcm_frame_bytes
        self._carry = data[whole:]
        self._audio.put(data[:whole])

    async def send(self, pcm: bytes | memoryview) -> None:
        """Add audio of any length; returns when the service is not far behind. Raises
        TranscriptionError if the transcription is over; the subclass says why."""
        data = memoryview(pcm).cast("B")
        step = round(SEND_AHEAD_S / 8 * self.options.sample_rate) * self.options.pcm_frame_bytes
        for start in range(0, len(data), step):
            await self._notifier.until(lambda: self._over or self._ahead_s <= SEND_AHEAD_S)
            self._raise_if_over()
            self.put(bytes(data[start : start + step]))

    def finish(self) -> None:
        self._audio.finish()

    async def stop(self) -> Done:
        """End the audio, wait for the last notes, return the totals and the MIDI file. Raises
        TranscriptionError if the service failed, was lost for good, or the audio ended within a
        sample; ``done`` has the MIDI up to then if the service could send it."""
        self.finish()
        await asyncio.wait([self._task])
        if self._task.cancelled():
            raise SessionEndedError("the session was closed before it was done")
        done = self._task.result()
        if self._carry:
            raise TranscriptionError("the audio ended within a sample", done=done)
        return done

    @property
    def _ahead_s(self) -> float:
        """Audio that was given and is not yet sent."""
        return (self._audio.end - self._audio.position) / self.options.sample_rate

    @property
    def _task(self) -> asyncio.Task[Done]:
        if self._performing is None:
            raise RuntimeError("connect() was not called")
        return self._performing

    @property
    def _over(self) -> bool:
        return self._task.done()

    def _raise_if_over(self) -> None:
        if self._over:
            self._raise_failure()
            raise SessionEndedError("the session is over")

    def _raise_failure(self) -> None:
        if not self._task.cancelled():
            self._task.result()

    async def __aiter__(self) -> AsyncIterator[Event]:
        """Yields events as they arrive; after the last, raises the failure if there was one."""
        events = self.performance.events
        while True:
            await self._notifier.until(lambda: bool(events) or self._over)
            if not events:
                break
            yield events.popleft()
        self._raise_failure()

    async def _perform(self) -> Done:
        """Runs session after session until all notes have been received."""
        performance, attempts, without_progress = self.performance, 0, 0
        lost_at: float | None = None
        try:
            while True:
                begun, known = performance.sessions, performance.decided
                try:
                    session = Session(self._url, performance, self._stall_timeout_s)
                    return performance.merge_done(await session.run())
                except TranscriptionError as error:
                    failure = error
                refused = isinstance(failure, ServerError) and failure.code in NOT_RESUMABLE
                goes_on = failure.retryable and (self._retry_first or performance.sessions > 0)
                if refused and performance.resumable:
                    performance.end_part()
                    goes_on = True  # without resuming
                connected = performance.sessions > begun
                if connected or lost_at is None:
                    lost_at = time.monotonic()
                if performance.decided > known:
                    attempts, without_progress = 0, 0
                elif connected:
                    without_progress += 1
                if self._give_up_s is None:
                    impatient = self._audio.ended and not connected
                else:
                    impatient = time.monotonic() - lost_at >= self._give_up_s
                if not goes_on or impatient or without_progress >= MAX_ATTEMPTS_WITHOUT_PROGRESS:
                    if failure.done is not None:
                        failure.done = performance.merge_done(failure.done)
                    raise failure
                delay_s = min(MAX_DELAY_S, FIRST_DELAY_S * 2 ** min(attempts, 9))
                attempts += 1
                await self._pause(failure, delay_s * random.uniform(0.75, 1.25))
        finally:
            performance.end_part()

    async def _pause(self, failure: TranscriptionError, retry_s: float) -> None:
        """Until the next attempt: sooner if the audio ends meanwhile."""
        self.performance.emit(Disconnected(error=failure, retry_s=retry_s))
        ended = self._audio.ended
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(retry_s):
                await self._notifier.until(lambda: self._audio.ended and not ended)
