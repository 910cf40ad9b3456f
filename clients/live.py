"""Endless live transcription: session after session over one backlog of audio.

When a connection is lost, a new session begins where the notes of the old one ended, with a little
of the audio before it, which the model needs to hear; notes that were told already are not told
again. Times and note numbers run on from session to session.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Protocol

from clients.backlog import Backlog
from clients.client import TranscriptionClient
from clients.errors import ConnectionLostError, TranscriptionError
from clients.protocol import Event, NoteOff, NoteOn, Ready, StartOptions

# The window of the model: 8192 samples at 11,025 Hz, all of which may bear on its last frame.
CONTEXT_S = 0.75
FIRST_DELAY_S = 0.5
LONGEST_DELAY_S = 15.0
# The same onset, heard again with other audio before it, may be found this much earlier or later.
ONSET_TOLERANCE_S = 0.05


class Listener(Protocol):
    """Who is told of a live transcription."""

    def connected(self, ready: Ready) -> None:
        """A session has begun."""

    def disconnected(self, error: TranscriptionError, retry_s: float) -> None:
        """A session was lost; the next is tried in ``retry_s`` seconds."""

    def event(self, event: Event) -> None:
        """An event, its time in seconds since the beginning of the take."""


def delays_s() -> Iterator[float]:
    """Pauses before each new attempt: doubling, with jitter so that clients do not come at once."""
    delay_s = FIRST_DELAY_S
    while True:
        yield delay_s * random.uniform(0.75, 1.25)
        delay_s = min(LONGEST_DELAY_S, 2 * delay_s)


async def transcribe_live(
    backlog: Backlog,
    url: str,
    options: StartOptions,
    listener: Listener,
    *,
    delays: Callable[[], Iterator[float]] = delays_s,
    context_s: float = CONTEXT_S,
) -> None:
    """Transcribe until the backlog ends and its last notes are told.

    Raises:
        TranscriptionError: the service will not take this audio, however often it is asked; or
            the audio ended while there was no connection.
    """
    take = _Take(listener, options.sample_rate)
    attempts = delays()
    while True:
        connected = False
        try:
            client = TranscriptionClient(url, options)
            ready = await client.connect()
            connected = True
            listener.connected(ready)
            await _session(client, backlog, take, round(context_s * options.sample_rate))
            return
        except TranscriptionError as error:
            if not error.retryable or (backlog.ended and not connected):
                raise
            if connected:
                attempts = delays()
            retry_s = next(attempts)
            listener.disconnected(error, retry_s)
        try:
            async with asyncio.timeout(retry_s):
                await backlog.wait_ended()  # then one last attempt, at once
        except TimeoutError:
            pass


class _Take:
    """What has been told so far, in the time of the whole take."""

    def __init__(self, listener: Listener, sample_rate: int) -> None:
        self.listener = listener
        self.sample_rate = sample_rate
        self.told_s = -1.0
        self.notes = 0
        self.onsets_s: dict[int, float] = {}  # by pitch, the last

    async def follow(self, client: TranscriptionClient, origin: int) -> None:
        """Pass the events of a session on; its sample 0 is sample ``origin`` of the take."""
        shift_s = origin / self.sample_rate
        resumed_s = self.told_s
        numbers: dict[int, int] = {}
        try:
            async for event in client:
                if isinstance(event, NoteOn):
                    time_s = event.time_s + shift_s
                    if self._was_told(event.pitch, time_s, resumed_s):
                        continue
                    self.onsets_s[event.pitch] = time_s
                    numbers[event.note_id] = self.notes
                    self.notes += 1
                    event = replace(event, note_id=numbers[event.note_id], time_s=time_s)
                elif isinstance(event, NoteOff):
                    number = numbers.pop(event.note_id, None)
                    if number is None:
                        continue
                    event = replace(event, note_id=number, time_s=event.time_s + shift_s)
                self.listener.event(event)
        except TranscriptionError:
            pass  # the sending side is told the same
        self.told_s = max(self.told_s, shift_s + client.transcribed_s)

    def _was_told(self, pitch: int, time_s: float, resumed_s: float) -> bool:
        """Whether the session before, which told all until ``resumed_s``, told of this onset."""
        again = abs(time_s - self.onsets_s.get(pitch, -1.0)) < ONSET_TOLERANCE_S
        return time_s <= resumed_s or (again and time_s <= resumed_s + ONSET_TOLERANCE_S)


async def _session(
    client: TranscriptionClient, backlog: Backlog, take: _Take, context_samples: int
) -> None:
    """One session from the oldest audio that is kept to the end of the audio."""
    origin = position = backlog.start
    following = asyncio.create_task(take.follow(client, origin))
    try:
        while (pcm := await _next_audio(client, backlog, position)) is not None:
            if following.done():
                following.result()  # a listener has failed: the MIDI port is gone, say
            await client.send(pcm)
            position += len(pcm) // backlog.frame_bytes
            told = origin + round(client.transcribed_s * take.sample_rate)
            backlog.release(told - context_samples)
        done = await client.stop()
        if done.reason != "stop":
            raise ConnectionLostError(f"the service ends: {done.reason}", retryable=True)
    except LookupError as error:
        raise ConnectionLostError(f"the service is too slow: {error}", retryable=True) from None
    finally:
        await client.close()
        await following


async def _next_audio(client: TranscriptionClient, backlog: Backlog, position: int) -> bytes | None:
    """The audio at ``position``; None at the end of all audio.

    A session that ends while the device is silent is noticed: keepalives need the connection.
    """
    while True:
        try:
            async with asyncio.timeout(1.0):
                return await backlog.read(position)
        except TimeoutError:
            await client.keepalive()
