"""Transcribe audio as it comes, over connections that may break.

    async def notes_of(pcm_blocks):  # 16-bit PCM at 48 kHz, in blocks of any size
        options = Start(encoding="pcm_s16le", sample_rate=48_000)
        async with TranscriptionClient("http://127.0.0.1:8000", options) as client:
            async for pcm in pcm_blocks:
                await client.send(pcm)
            done = await client.stop()  # the last notes, the totals, the MIDI file
        Path("song.mid").write_bytes(done.midi)
        return [event async for event in client]  # or read them in a task, as they come

The client reconnects automatically, to this or another server, without gaps in the notes. Each
``NoteOn`` is always followed by one ``NoteOff``, and the press of a pedal by its release.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial

from clients.connection.backlog import Backlog
from clients.connection.retry import Retry, delays_s
from clients.connection.session import Changes, Session
from clients.connection.websocket import websocket_url
from clients.errors import (
    ConnectError,
    ConnectionLostError,
    ServerError,
    SessionEndedError,
    TranscriptionError,
)
from clients.events import Disconnected, Event
from clients.midi.notes import NoteList
from clients.resumption.event_queue import EventQueue
from clients.resumption.performance import Performance
from service.protocol.client_messages import Start
from service.protocol.server_messages import Done, Ready, SessionEvent

SEND_AHEAD_S = 2.0  # audio that ``send`` accepts before it waits for the service
KEEPALIVE_S = 5.0
NOT_RESUMABLE = ("bad_resume", "unknown_model")  # the service may have another model by now


class TranscriptionClient:
    """A performance, transcribed in one session or, if connections break, in several.

    Args:
        url: any address of the service (``clients.connection.websocket.websocket_url``).
        options: format of the audio, and transcription options. Corrected instruments and the
            pedal are asked for unless ``updates`` is set to False.
        max_buffered_s: audio kept while disconnected, including what a resumption must send again
            (``ready.replay_ms``). Beyond that, ``put`` drops the oldest audio and reports a
            ``Gap``.
        hold_notes_s: time after which notes that sound when a connection breaks are ended, and the
            pedal is released; in ``notes`` and in the MIDI file they keep their true ends.
        give_up_s: time without a connection after which the client gives up; None: never, while
            audio arrives.
        delays: pauses between attempts to connect, in seconds.
        open_timeout_s, stall_timeout_s, key: see ``clients.connection.session.Session``.
        max_pending_events: events that may wait for the caller to iterate. Beyond that the oldest
            are dropped, and iterating raises an error; ``notes`` and ``stop`` lose nothing.

    An instance belongs to one event loop. Call ``send`` and ``stop`` from one task at a time;
    another task may iterate.
    """

    def __init__(
        self,
        url: str,
        options: Start,
        *,
        max_buffered_s: float = 60.0,
        hold_notes_s: float = 1.0,
        give_up_s: float | None = 60.0,
        delays: Callable[[], Iterator[float]] = delays_s,
        open_timeout_s: float = 10.0,
        stall_timeout_s: float = 60.0,
        max_pending_events: int = 65_536,
        key: str | None = None,
    ) -> None:
        self.url = websocket_url(url)
        if "updates" not in options.model_fields_set:
            options = options.model_copy(update={"updates": True})
        self.options = options
        self._new_session = partial(
            Session,
            self.url,
            open_timeout_s=open_timeout_s,
            stall_timeout_s=stall_timeout_s,
            key=key,
        )
        self._audio = Backlog(options.frame_bytes, self._samples(max_buffered_s))
        self._carry = b""  # an incomplete sample
        self._position = 0  # the next sample to be sent
        self._changes = Changes()
        self._queue = EventQueue(max_pending_events, hold_notes_s, self._changes.notify)
        self._performance = Performance(options, self._audio, self._queue)
        self._retry = Retry(give_up_s, delays)
        self._performing: asyncio.Task[Done] | None = None
        self._patient = True  # the first session may take several attempts
        self._over = False

    @property
    def ready(self) -> Ready | None:
        return self._performance.ready

    @property
    def notes(self) -> NoteList:
        return self._performance.notes

    @property
    def sessions(self) -> int:
        return self._performance.sessions

    @property
    def lost_samples(self) -> int:
        """Samples per channel that were dropped and never transcribed."""
        return self._performance.lost_samples

    # -- life ------------------------------------------------------------------------------------

    async def connect(self) -> Ready:
        """Open the first session.

        Raises:
            ConnectError: the service is unreachable or accepts no session now (``retryable``).
            ServerError: it rejects the options.
        """
        self._patient = False
        self.start()
        await self._changes.until(lambda: self.ready is not None or self._over)
        if self.ready is None:
            await self._raise_failure()
            raise ConnectError(f"{self.url} closed the connection at once", retryable=True)
        return self.ready

    def start(self) -> None:
        """Open the first session in the background, however many attempts it takes."""
        self._performing = asyncio.create_task(self._perform())

    async def close(self) -> None:
        """Drop the session in any state; open notes get their ``NoteOff``."""
        if self._performing is not None:
            self._performing.cancel()
            await asyncio.gather(self._performing, return_exceptions=True)

    async def __aenter__(self) -> TranscriptionClient:
        await self.connect()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # -- audio -----------------------------------------------------------------------------------

    @property
    def sent_samples(self) -> int:
        """Whole samples per channel given to ``send`` or ``put``."""
        return self._audio.end

    @property
    def transcribed_s(self) -> float:
        """Seconds of audio covered by the events so far."""
        return self._queue.time_s

    def put(self, pcm: bytes) -> None:
        """Add audio of any length without waiting; for audio devices."""
        data = self._carry + pcm
        whole = len(data) - len(data) % self.options.frame_bytes
        self._carry = data[whole:]
        self._audio.put(data[:whole])

    async def send(self, pcm: bytes | memoryview) -> None:
        """Add audio of any length; returns when the service is not far behind.

        Raises:
            TranscriptionError: the transcription is over; the subclass says why.
        """
        data = memoryview(pcm).cast("B")
        step = self._samples(SEND_AHEAD_S) // 8 * self.options.frame_bytes
        for start in range(0, len(data), step):
            await self._changes.until(lambda: self._over or not self._is_ahead)
            await self._raise_if_over()
            self.put(bytes(data[start : start + step]))

    def finish(self) -> None:
        self._audio.finish()

    async def stop(self) -> Done:
        """End the audio, wait for the last notes, return the totals and the MIDI file.

        Raises:
            ServerError: the session failed; ``done`` has the MIDI up to the failure.
            ConnectionLostError: no session was completed.
            TranscriptionError: the audio ended within a sample; ``done`` has everything before.
        """
        if self._performing is None:
            raise RuntimeError("connect() was not called")
        self.finish()
        await asyncio.wait([self._performing])
        if self._performing.cancelled():
            raise SessionEndedError("the session was closed before it was done")
        done = self._performing.result()
        if self._carry:
            raise TranscriptionError("the audio ended within a sample", done=done)
        return done

    @property
    def _is_ahead(self) -> bool:
        """Whether so much audio is waiting that more would displace audio still needed."""
        held = self._audio.end - self._audio.start
        ahead = self._audio.end - self._position
        return ahead > self._samples(SEND_AHEAD_S) or (
            ahead > 0 and held > self._audio.max_samples * 3 // 4
        )

    async def _raise_if_over(self) -> None:
        if self._performing is None:
            raise RuntimeError("connect() was not called")
        if self._over:
            await self._raise_failure()
            raise SessionEndedError("the session is over")

    async def _raise_failure(self) -> None:
        assert self._performing is not None
        await asyncio.wait([self._performing])
        if not self._performing.cancelled():
            self._performing.result()

    def _samples(self, seconds: float) -> int:
        return round(seconds * self.options.sample_rate)

    # -- events ----------------------------------------------------------------------------------

    async def __aiter__(self) -> AsyncIterator[Event]:
        """Yields events as they arrive; after the last, raises the failure if there was one."""
        while True:
            await self._changes.until(lambda: bool(self._queue.events) or self._over)
            while self._queue.events:
                if self._queue.dropped:
                    raise TranscriptionError(f"{self._queue.dropped} events were not read in time")
                yield self._queue.events.popleft()
            if self._over:
                break
        await self._raise_failure()

    # -- sessions --------------------------------------------------------------------------------

    async def _perform(self) -> Done:
        """Runs session after session until all notes have been received."""
        try:
            return await self._until_done()
        finally:
            self._performance.end_part()
            self._over = True
            self._changes.notify()

    async def _until_done(self) -> Done:
        performance = self._performance
        while True:
            begun, known = performance.sessions, performance.decided
            try:
                return performance.whole(await self._session())
            except TranscriptionError as error:
                failure = error
            refused = isinstance(failure, ServerError) and failure.code in NOT_RESUMABLE
            if refused and performance.resumable:
                performance.end_part()  # continue without resuming
            elif not failure.retryable or not (self._patient or performance.sessions):
                raise performance.failed(failure)
            retry_s = self._retry.after(
                connected=performance.sessions > begun,
                fruitful=performance.decided > known,
                audio_ended=self._audio.ended.is_set(),
            )
            if retry_s is None:
                raise performance.failed(failure)
            await self._pause(failure, retry_s)

    async def _pause(self, failure: TranscriptionError, retry_s: float) -> None:
        self._queue.hold()
        self._queue.put(Disconnected(error=failure, retry_s=retry_s))
        self._changes.notify()
        if self._audio.ended.is_set():
            await asyncio.sleep(retry_s)
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(retry_s):
                await self._audio.ended.wait()  # then retry at once

    async def _session(self) -> Done:
        """One session: from the previous one's resume point to the end of the audio."""
        performance = self._performance
        resume = performance.resume()
        session = self._new_session(performance.options, self._hear, resume)
        try:
            await session.open()
            self._position = self._performance.needed
            while (pcm := await self._next_audio(session)) is not None:
                await session.send(pcm)
                self._position += len(pcm) // self.options.frame_bytes
                self._changes.notify()
            return await session.stop()
        except LookupError as error:
            raise ConnectionLostError(f"the service is too slow: {error}", retryable=True) from None
        finally:
            await session.close()

    def _hear(self, message: Ready | SessionEvent) -> None:
        self._performance.hear(message)
        self._changes.notify()

    async def _next_audio(self, session: Session) -> bytes | None:
        """The next audio; None at the end of all audio. Raises if the session ends."""
        reading = asyncio.ensure_future(self._audio.read(self._position))
        ending = asyncio.ensure_future(session.ended.wait())
        try:
            while not reading.done():
                await asyncio.wait(
                    [reading, ending], timeout=KEEPALIVE_S, return_when=asyncio.FIRST_COMPLETED
                )
                if ending.done():
                    raise session.over()
                if not reading.done():
                    await session.keepalive()
            return reading.result()
        finally:
            reading.cancel()
            ending.cancel()
