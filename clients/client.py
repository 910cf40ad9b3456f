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
import random
import time
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial

from clients.connection.session import Session
from clients.connection.websocket import websocket_url
from clients.errors import ServerError, SessionEndedError, TranscriptionError
from clients.events import Disconnected, Event
from clients.midi.notes import ReceivedNotes
from clients.resumption.backlog import Backlog, Changes
from clients.resumption.performance import ResumablePerformance
from service.protocol.client_messages import Start
from service.protocol.server_messages import Done, Ready

SEND_AHEAD_S = 2.0  # audio that ``send`` accepts before it waits for the service
NOT_RESUMABLE = ("bad_resume", "unknown_model")  # the service may have another model by now
FIRST_DELAY_S = 0.5
LONGEST_DELAY_S = 15.0
# Consecutive sessions without any new frame before giving up.
MAX_FRUITLESS = 5


def delays_s() -> Iterator[float]:
    """Pauses before each new attempt: doubling, with jitter so that clients do not come at once."""
    delay_s = FIRST_DELAY_S
    while True:
        yield delay_s * random.uniform(0.75, 1.25)
        delay_s = min(LONGEST_DELAY_S, 2 * delay_s)


class TranscriptionClient:
    """A performance, transcribed in one session or, if connections break, in several.

    Args:
        url: any address of the service (``clients.connection.websocket.websocket_url``).
        options: format of the audio, and transcription options. Corrected instruments and the
            pedal are asked for unless ``updates`` is set to False.
        max_kept_s: audio kept while disconnected, including what a resumption must send again
            (``ready.replay_ms``). Beyond that, ``put`` drops the oldest audio and reports a
            ``Gap``.
        hold_notes_s: time after which notes that sound when a connection breaks are ended, and the
            pedal is released; in ``notes`` and in the MIDI file they keep their true ends.
        give_up_s: time without a connection after which the client gives up; None: never, while
            audio arrives.
        delays: pauses between attempts to connect, in seconds.
        open_timeout_s: for the connection and the server's ``ready``.
        stall_timeout_s: silence of the server, while it owes an answer, that ends a session.
        key: API key, if the service asks for one (default: ``$RSE_KEY``).

    An instance belongs to one event loop. Call ``send`` and ``stop`` from one task at a time;
    another task may iterate.
    """

    def __init__(
        self,
        url: str,
        options: Start,
        *,
        max_kept_s: float = 60.0,
        hold_notes_s: float = 1.0,
        give_up_s: float | None = 60.0,
        delays: Callable[[], Iterator[float]] = delays_s,
        open_timeout_s: float = 10.0,
        stall_timeout_s: float = 60.0,
        key: str | None = None,
    ) -> None:
        self.url = websocket_url(url)
        if "updates" not in options.model_fields_set:
            options = options.model_copy(update={"updates": True})
        self.options = options
        self._changes = Changes()
        self._audio = Backlog(options.frame_bytes, self._samples(max_kept_s), self._changes)
        self._performance = ResumablePerformance(options, self._audio, hold_notes_s, self._changes)
        self._new_session = partial(
            Session,
            url=self.url,
            performance=self._performance,
            audio=self._audio,
            changes=self._changes,
            open_timeout_s=open_timeout_s,
            stall_timeout_s=stall_timeout_s,
            key=key,
        )
        self._carry = b""  # an incomplete sample
        self._give_up_s = give_up_s
        self._delays = delays
        self._performing: asyncio.Task[Done] | None = None
        self._patient = True  # the first session may take several attempts

    @property
    def ready(self) -> Ready | None:
        return self._performance.ready

    @property
    def notes(self) -> ReceivedNotes:
        return self._performance.notes

    @property
    def sessions(self) -> int:
        return self._performance.sessions

    @property
    def lost_samples(self) -> int:
        """Samples per channel that were dropped and never transcribed."""
        return self._performance.lost_samples

    @property
    def behind_s(self) -> float:
        """Audio that was given and is not yet transcribed."""
        return (self._audio.end - self._performance.decided) / self.options.sample_rate

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
            self._raise_if_over()
        assert self.ready is not None
        return self.ready

    def start(self) -> None:
        """Open the first session in the background, however many attempts it takes."""
        self._performing = asyncio.create_task(self._perform())
        self._performing.add_done_callback(lambda _: self._changes.notify())

    async def close(self) -> None:
        """Drop the session in any state; open notes get their ``NoteOff``."""
        if self._performing is not None:
            self._performing.cancel()
            await asyncio.gather(self._performing, return_exceptions=True)

    async def __aenter__(self) -> TranscriptionClient:
        try:
            await self.connect()
        except BaseException:  # cancelled too: the session would go on with nobody to close it
            await self.close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # -- audio -----------------------------------------------------------------------------------

    @property
    def sent_samples(self) -> int:
        """Whole samples per channel given to ``send`` or ``put``."""
        return self._audio.end

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
            self._raise_if_over()
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
        ahead = self._audio.end - self._audio.position
        return ahead > self._samples(SEND_AHEAD_S) or (
            ahead > 0 and held > self._audio.max_samples * 3 // 4
        )

    @property
    def _over(self) -> bool:
        return self._performing is not None and self._performing.done()

    def _raise_if_over(self) -> None:
        if self._performing is None:
            raise RuntimeError("connect() was not called")
        if self._performing.done():
            self._raise_failure()
            raise SessionEndedError("the session is over")

    def _raise_failure(self) -> None:
        if self._performing is not None and not self._performing.cancelled():
            self._performing.result()

    def _samples(self, seconds: float) -> int:
        return round(seconds * self.options.sample_rate)

    # -- events ----------------------------------------------------------------------------------

    async def __aiter__(self) -> AsyncIterator[Event]:
        """Yields events as they arrive; after the last, raises the failure if there was one."""
        events = self._performance.events
        while True:
            await self._changes.until(lambda: bool(events) or self._over)
            if not events:
                break
            yield events.popleft()
        self._raise_failure()

    # -- sessions --------------------------------------------------------------------------------

    async def _perform(self) -> Done:
        """Runs session after session until all notes have been received."""
        performance, delays, fruitless = self._performance, self._delays(), 0
        lost_at: float | None = None
        try:
            while True:
                begun, known = performance.sessions, performance.decided
                try:
                    return performance.whole(await self._new_session().run())
                except TranscriptionError as error:
                    failure = error
                refused = isinstance(failure, ServerError) and failure.code in NOT_RESUMABLE
                goes_on = failure.retryable and (self._patient or performance.sessions > 0)
                if refused and performance.resumable:
                    performance.end_part()
                    goes_on = True  # without resuming
                connected = performance.sessions > begun
                if connected or lost_at is None:
                    lost_at = time.monotonic()
                if performance.decided > known:
                    delays, fruitless = self._delays(), 0
                elif connected:
                    fruitless += 1
                if self._give_up_s is None:
                    impatient = self._audio.ended.is_set() and not connected
                else:
                    impatient = time.monotonic() - lost_at >= self._give_up_s
                if not goes_on or impatient or fruitless >= MAX_FRUITLESS:
                    if failure.done is not None:
                        failure.done = performance.whole(failure.done)
                    raise failure
                await self._pause(failure, next(delays))
        finally:
            performance.end_part()

    async def _pause(self, failure: TranscriptionError, retry_s: float) -> None:
        self._performance.lost(Disconnected(error=failure, retry_s=retry_s))
        if self._audio.ended.is_set():
            await asyncio.sleep(retry_s)
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(retry_s):
                await self._audio.ended.wait()  # then retry at once
