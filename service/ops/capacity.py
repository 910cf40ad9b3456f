"""Admission control for sessions, uploads and scores.

The options of a session determine how many windows per second it requires. The cost of a window is
its computing time in the batches of a busy worker. It is first estimated from the warm-up, and then
updated from the timings of the workers, so that it adapts to other load on the machine. With the
limit `auto`, a session is admitted if one worker can compute it (MAX_LOAD_ONE_SESSION), and the
predicted load is at most MAX_LOAD or no other session is open.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Literal

from model.config import HOP
from service.protocol.errors import ErrorCode, ProtocolError
from service.protocol.options import Mode, StreamOptions
from service.stream.windows import BatchTiming

# Maximum predicted share of the workers' time that all sessions use. The remaining time is for
# sockets, windows that become pending together, and batches of recordings.
MAX_LOAD = 0.75
MAX_LOAD_ONE_SESSION = 0.85  # maximum predicted share of a worker's time that one session uses
SESSION_WINDOWS_PER_S = 2.0  # cost of a session's socket and audio in windows per second
TRACKING_S = 0.0012  # estimated time in s to track the notes of a window, absent in the warm-up
# Maximum ratio of a measured cost to the average, because the machine may pause during a batch.
MAX_RISE = 4.0
MEMORY_WINDOWS = 500  # number of windows in the moving average of the cost: 23 s of one session

_ROUNDING = 1e-6  # tolerance of sums of sizes


class AdmissionControl:
    """Limits the total size of reservations, and the number of reservations per client."""

    def __init__(self, total: float) -> None:
        self._total = total
        self.used = 0.0  # sum of the reserved sizes
        self._clients: Counter[str] = Counter()

    @property
    def total(self) -> float:
        return self._total

    @property
    def count(self) -> int:
        return self._clients.total()

    def fits(self, size: float = 1.0, reserved: float = 0.0) -> bool:
        """True if this size fits. reserved: size of the reservation that is resized, else 0."""
        return self.used - reserved + size <= self.total + _ROUNDING

    @contextlib.contextmanager
    def reserve(self, client: str, max_count: int, size: float = 1.0) -> Iterator[Reservation]:
        """Hold a reservation while the block runs, or until its ``release``. Raises ProtocolError
        if it does not fit, or the client has ``max_count`` reservations."""
        if not self.fits(size):
            raise self.rejection()
        if self._clients[client] >= max_count:
            message = f"you have {max_count} in progress, your maximum: retry when one has ended"
            raise ProtocolError(ErrorCode.CLIENT_LIMIT, message)
        reservation = Reservation(self, client, size)
        self._clients[client] += 1
        self.used += size
        try:
            yield reservation
        finally:
            reservation.release()

    def _release(self, client: str, size: float) -> None:
        self._clients[client] -= 1
        self._clients += Counter()  # drops clients without reservations
        self.used = self.used - size if self._clients else 0.0

    def rejection(self) -> ProtocolError:
        return ProtocolError(ErrorCode.TOO_MANY_UPLOADS, "the server is busy with other requests")


class Reservation:
    """Size that is reserved for a client until ``release``."""

    def __init__(self, control: AdmissionControl, client: str, size: float) -> None:
        self._control, self._client, self._size = control, client, size
        self._released = False

    def resize(self, size: float) -> bool:
        """Change the reserved size. Return False, and change nothing, if it does not fit."""
        if not self._control.fits(size, self._size):
            return False
        self._control.used += size - self._size
        self._size = size
        return True

    def release(self) -> None:
        if not self._released:
            self._released = True
            self._control._release(self._client, self._size)


class SessionAdmissionControl(AdmissionControl):
    """Limits either the number of sessions or the predicted load.

    If ``limits_load``, sizes are in windows per second, and ``window_s`` is the cost of a live
    window in s. Otherwise each size is 1.
    """

    def __init__(self, limit: int | Literal["auto"]) -> None:
        """limit: number of sessions, or `auto` to use the predicted load. With `auto`, no session
        is admitted before ``calibrate``."""
        super().__init__(0 if limit == "auto" else limit)
        self._by_load = limit == "auto"
        self.window_s = self._quiet_window_s = 0.0  # current and minimum cost of a window
        self._running_workers: Callable[[], int] = lambda: 0
        self._hops_per_s = 0.0

    def calibrate(
        self, window_s: float, running_workers: Callable[[], int], sample_rate_hz: int
    ) -> None:
        """Set the cost of a window in the warm-up. ``running_workers`` returns the number of
        workers that can compute now: while one restarts, the others cannot take all its sessions.
        """
        if self._by_load:
            self.window_s = self._quiet_window_s = window_s + TRACKING_S
            self._running_workers, self._hops_per_s = running_workers, sample_rate_hz / HOP

    @property
    def limits_load(self) -> bool:
        """True after ``calibrate`` if the limit is `auto`."""
        return self.window_s > 0

    def update_cost(self, timing: BatchTiming) -> None:
        """Update the cost of a window from the timing of a batch of live sessions. Windows of small
        batches cost more, but a worker that is not busy has time for that, so its batches can only
        reduce the cost."""
        if not self.limits_load or timing.way != "live" or not timing.windows:
            return
        cost_s = min(timing.total_s / timing.windows, MAX_RISE * self.window_s)
        if timing.is_busy or cost_s < self.window_s:
            weight = min(1.0, timing.windows / MEMORY_WINDOWS)
            self.window_s += weight * (cost_s - self.window_s)
        self._quiet_window_s = min(self._quiet_window_s, self.window_s)

    def _release(self, client: str, size: float) -> None:
        super()._release(client, size)
        if not self.count:  # without sessions no timings would reduce a cost that is too high
            self.window_s = self._quiet_window_s

    @property
    def windows_per_s(self) -> float:
        """Number of windows that all running workers together can compute per second."""
        return self._running_workers() / self.window_s if self.limits_load else 0.0

    @property
    def max_session_windows_per_s(self) -> float:
        """Maximum number of windows per second of a session, which has the time of one worker."""
        return MAX_LOAD_ONE_SESSION / self.window_s

    @property
    def total(self) -> float:
        return MAX_LOAD * self.windows_per_s if self.limits_load else self._total

    def fits(self, size: float = 1.0, reserved: float = 0.0) -> bool:
        """True if a session of this size fits. A session that runs alone may exceed the total."""
        if not self.limits_load:
            return super().fits(size, reserved)
        is_alone = self.count == (1 if reserved else 0)
        return size <= self.max_session_windows_per_s and (is_alone or super().fits(size, reserved))

    @property
    def limit(self) -> int:
        """Maximum number of sessions with default options."""
        if not self.limits_load:
            return int(self.total)
        return max(1, int(self.total / self.size(StreamOptions())))

    @property
    def load(self) -> float:
        """Reserved size divided by the total, but at least 1 if no further session fits, and 0 if
        no worker runs. It may exceed 1 if one session runs alone, or if the cost of a window has
        risen since the sessions were admitted."""
        if not self.total:
            return 0.0
        share = self.used / self.total
        return share if self.fits(self.initial_size) else max(1.0, share)

    def size(self, options: StreamOptions) -> float:
        """Return the size that a session with these options reserves."""
        if not self.limits_load:
            return 1.0
        return self._hops_per_s / options.frames_per_window + SESSION_WINDOWS_PER_S

    @property
    def initial_size(self) -> float:
        """Size to reserve until the options are known: that of a session with default options, or
        the maximum of a machine that is too slow for them, so that other options are possible."""
        size = self.size(StreamOptions())
        return min(size, self.max_session_windows_per_s) if self.limits_load else size

    def rejection(self, options: StreamOptions | None = None) -> ProtocolError:
        """Return the error for a session that does not fit. options: None before `start`."""
        if self.limits_load and options and self.size(options) > self.max_session_windows_per_s:
            purpose = "to play along" if options.mode is Mode.ANYTIME else "for these options"
            return ProtocolError(ErrorCode.TOO_SLOW, f"this machine is too slow {purpose}")
        message = "the server is busy with other sessions"
        return ProtocolError(ErrorCode.TOO_MANY_SESSIONS, message)
