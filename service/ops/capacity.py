"""Room for sessions and uploads.

For about a second of the start, sessions with default options process audio as fast as they can.
Sessions are admitted up to a fraction of that, each by the windows per second that it asks for.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from model.config import HOP
from service.protocol.faults import ErrorCode, ProtocolError
from service.protocol.options import AudioFormat, Encoding, Mode, StreamOptions
from service.protocol.server_messages import Limits
from service.workers.link import Relay
from service.workers.messages import Open
from service.workers.pool import Pool

logger = logging.getLogger(__name__)

LOAD = 0.4
"""Fraction of the measured throughput that sessions may ask for. The rest serves sockets, a batch
of a recording that runs when a window becomes due, and windows that become due together: on two
cores of an AMD EPYC (Zen 4), 99 of 100 events then came within 50 ms beyond the stated delay
(``python -m tests.benchmarks load``)."""
ALONE = 0.6  # the same for a session that has the machine to itself
ALONE_WORKER = 0.8  # the same of one worker process, where a session stays with one
SESSION_WINDOWS_PER_S = 2.0  # beside its windows: a socket, which the trial lacks

_ROUNDING = 1e-6  # of sums of sizes
_TRIALS = 2  # other load slows a trial down: the best counts
_TRIAL_S = 0.4
_SESSIONS = 16  # of a trial, at most as many as others leave room for
_CHUNK_S = 0.1
_LEVEL = 0.05  # of the noise that they hear


@dataclass(frozen=True)
class Capacity:
    """What a machine carries.

    Attributes:
        windows_per_s: windows of default streams that all cores compute per second.
        sample_rate_hz: of the model.
        alone: fraction that one session may ask for.
    """

    windows_per_s: float
    sample_rate_hz: int
    alone: float = ALONE

    @property
    def admitted_per_s(self) -> float:
        """Windows per second that sessions may ask for together; one with default options may."""
        return max(LOAD * self.windows_per_s, self.asked_per_s(StreamOptions()))

    @property
    def most_each_per_s(self) -> float:
        """Windows per second that one session may ask for if it is the only one."""
        return max(self.alone * self.windows_per_s, self.asked_per_s(StreamOptions()))

    def asked_per_s(self, options: StreamOptions) -> float:
        """Windows per second that a session asks for."""
        hops_per_s = self.sample_rate_hz / HOP
        return hops_per_s / options.frames_per_window + SESSION_WINDOWS_PER_S

    def sessions(self, options: StreamOptions) -> int:
        """Sessions that stay on time if all have these options."""
        asked = self.asked_per_s(options)
        return max(1, int(self.admitted_per_s / asked)) if asked <= self.most_each_per_s else 0


async def capacity(pool: Pool) -> Capacity:
    """The capacity of these workers, which have no streams yet."""
    windows_per_s = max([await _windows_per_s(pool) for _ in range(_TRIALS)])
    alone = min(ALONE, ALONE_WORKER / pool.workers)
    found = Capacity(windows_per_s, pool.config.sample_rate, alone)
    logger.info(
        "live sessions may ask for %.0f of %.0f windows per second: %d with default options",
        *(found.admitted_per_s, windows_per_s, found.sessions(StreamOptions())),
    )
    return found


async def _windows_per_s(pool: Pool) -> float:
    """Windows per second of sessions whose audio comes as fast as it is taken."""
    audio = AudioFormat(encoding=Encoding.PCM_S16LE, sample_rate_hz=48_000)
    # Nobody is told the limits.
    limits = Limits(max_message_bytes=0, max_session_s=0, idle_timeout_s=0, max_buffered_ms=0)
    opening = Open(session_id="0", audio=audio, options=StreamOptions(), limits=limits)
    noise = np.random.default_rng(0).standard_normal(int(_CHUNK_S * audio.sample_rate_hz))
    chunk = (32_767 * _LEVEL * noise).astype("<i2").tobytes()
    sessions = [pool.open_session(opening) for _ in range(_SESSIONS)]
    try:
        for session in sessions:
            await session.said()  # that it is ready
        before, began_s = pool.windows, time.monotonic()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_TRIAL_S):
                playing = [_play(session, chunk) for session in sessions]
                await asyncio.gather(*playing, *map(_listen, sessions))
    finally:
        for session in sessions:
            pool.close_session(session)
    return (pool.windows - before) / (time.monotonic() - began_s)


async def _play(session: Relay, chunk: bytes) -> None:
    while True:
        await session.room()
        session.send(chunk)


async def _listen(session: Relay) -> None:
    while True:
        await session.said()


class Room:
    """Limited room, taken without waiting; each client has its share of it."""

    def __init__(self, total: float) -> None:
        self.total = total
        self.taken = 0.0  # of the total
        self._clients: Counter[str] = Counter()  # reservations of each

    @property
    def count(self) -> int:
        """Reservations."""
        return self._clients.total()

    def has(self, size: float = 1.0, held: float = 0.0) -> bool:
        """Whether there is room for this size; ``held``: what a reservation takes up already."""
        return self.taken - held + size <= self.total + _ROUNDING

    @contextlib.contextmanager
    def take(self, client: str, most: int, size: float = 1.0) -> Iterator[Reservation]:
        """Hold room while the block runs. Raises ProtocolError if there is not enough, or the
        client has ``most`` reservations."""
        if not self.has(size):
            raise self.refusal()
        if self._clients[client] >= most:
            raise ProtocolError(ErrorCode.CLIENT_LIMIT, f"a client may have {most} at a time")
        place = Reservation(self, size)
        self._clients[client] += 1
        self.taken += size
        try:
            yield place
        finally:
            self._clients[client] -= 1
            self._clients += Counter()  # forgets those that have none
            self.taken = self.taken - place.size if self._clients else 0.0

    def refusal(self) -> ProtocolError:
        """Why there is no room."""
        return ProtocolError(ErrorCode.TOO_MANY_UPLOADS, "the server is busy with other uploads")


class Reservation:
    def __init__(self, room: Room, size: float) -> None:
        self._room = room
        self.size = size

    def resize(self, size: float) -> bool:
        """Change the room that it takes up; False, and no change, if there is not enough."""
        if not self._room.has(size, self.size):
            return False
        self._room.taken += size - self.size
        self.size = size
        return True


class SessionRoom(Room):
    """Room for live sessions: for a number that was set, or by the measured ``capacity``, of which
    each takes up the windows per second that it asks for."""

    def __init__(self, limit: int | Literal["auto"]) -> None:
        """With `auto` there is no room until `admit_by`."""
        super().__init__(0 if limit == "auto" else limit)
        self.capacity: Capacity | None = None

    def admit_by(self, capacity: Capacity) -> None:
        """From now on, sessions take up the windows per second that they ask for."""
        self.capacity = capacity
        self.total = capacity.admitted_per_s

    def has(self, size: float = 1.0, held: float = 0.0) -> bool:
        """Also for one that is larger than what several may ask for, if it is the only one."""
        if self.capacity is None:
            return super().has(size, held)
        alone = self.count <= (held > 0)
        return size <= self.capacity.most_each_per_s and (alone or super().has(size, held))

    @property
    def limit(self) -> int:
        """Sessions with default options that may be open at one time."""
        if self.capacity is None:
            return int(self.total)
        return self.capacity.sessions(StreamOptions())

    def size(self, options: StreamOptions) -> float:
        """Room that a session takes up."""
        return 1.0 if self.capacity is None else self.capacity.asked_per_s(options)

    def refusal(self, options: StreamOptions | None = None) -> ProtocolError:
        """Why there is no room for a session; None: one whose options are not known yet."""
        capacity = self.capacity
        if capacity and options and self.size(options) > capacity.most_each_per_s:
            purpose = "to play along" if options.mode is Mode.ANYTIME else "for these options"
            return ProtocolError(ErrorCode.TOO_SLOW, f"this machine is too slow {purpose}")
        message = "the server is busy with other sessions"
        return ProtocolError(ErrorCode.TOO_MANY_SESSIONS, message)
