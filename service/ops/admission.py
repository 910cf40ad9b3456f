"""Room for live sessions: a number that was set, or what the machine computes by measurement."""

from typing import Literal

from service.access.places import Places
from service.ops.capacity import Capacity
from service.protocol.faults import ErrorCode, ProtocolError
from service.protocol.options import MAX_BLOCK_FRAMES, StreamOptions


class SessionRoom(Places):
    """Places of live sessions. With a number that was set, all are alike; with a measured capacity,
    each takes up the windows per second that it asks for.

    Attributes:
        capacity: None if the number was set, or before the measurement.
    """

    def __init__(self, limit: int | Literal["auto"], default: StreamOptions) -> None:
        """default: options of sessions that ask for no others. With `auto` there is no room until
        :meth:`admit_by`."""
        super().__init__(0 if limit == "auto" else limit)
        self.default = default
        self.capacity: Capacity | None = None

    def admit_by(self, capacity: Capacity) -> None:
        """From now on, sessions take up the windows per second that they ask for."""
        self.capacity = capacity
        self.total = capacity.admitted_per_s

    @property
    def limit(self) -> int:
        """Sessions with default options that may be open at one time."""
        if self.capacity is None:
            return int(self.total)
        return self.capacity.sessions(self.default)

    def size(self, options: StreamOptions) -> float:
        """Room that a session takes up."""
        return 1.0 if self.capacity is None else self.capacity.asked_per_s(options)

    @property
    def first_size(self) -> float:
        """Room that a session takes up until its options are known: that of default options, or
        what is left if that is enough for the lightest session."""
        lightest = self.size(StreamOptions(block_frames=MAX_BLOCK_FRAMES))
        return min(self.size(self.default), max(lightest, self.total - self.taken))

    def refusal(self, size: float) -> ProtocolError:
        if self.capacity is None:
            message = f"all {self.total:.0f} sessions are taken"
            return ProtocolError(ErrorCode.TOO_MANY_SESSIONS, message)
        needs = f"a session with these options needs {size:.0f} windows per second"
        if size > self.total:
            return ProtocolError(
                ErrorCode.TOO_SLOW,
                f"{needs}; this machine computes {self.capacity.windows_per_s:.0f}, of which "
                f"sessions may use {self.total:.0f}",
            )
        return ProtocolError(
            ErrorCode.TOO_MANY_SESSIONS,
            f"{needs}; {self.taken:.0f} of {self.total:.0f} are taken",
        )
