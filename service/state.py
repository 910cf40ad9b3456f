"""State shared by the endpoints: settings, workers, admitted sessions and uploads, draining."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from service.access.clients import Client, Room, RoomPerClient
from service.access.keys import KeysError, read_keys
from service.access.problems import record_refusal
from service.access.tokens import Tokens
from service.ops.capacity import SessionRoom
from service.ops.metrics import Metrics
from service.protocol.faults import ErrorCode, ProtocolError
from service.settings import Settings
from service.workers.pool import Pool

NOT_RUNNING = "the model is not loaded yet, or has failed"
MAX_SESSIONS_PER_CLIENT = 8
MAX_UPLOADS_PER_CLIENT = 2


class ServiceState:
    """One per application, made at its start; used only from its event loop.

    Attributes:
        pool: the workers; their model is known once ``loaded``.
        load_error: why there will be no model.
    """

    def __init__(self, settings: Settings, pool: Pool, metrics: Metrics) -> None:
        """Raises `service.access.keys.KeysError` if the API keys cannot be read."""
        self.settings = settings
        self.pool = pool
        self.metrics = metrics
        self.keys = read_keys(settings.keys.get_secret_value(), settings.keys_file)
        if settings.has_keys and not self.keys:
            raise KeysError("the keys file has no keys, so every client would be refused")
        self.tokens = Tokens(self.keys)
        self.sessions = SessionRoom(settings.max_sessions)
        self.client_sessions = RoomPerClient()
        self.uploads = Room(settings.max_uploads)
        self.client_uploads = RoomPerClient()
        # Set once, at the first SIGTERM; sessions watch it to end with their last notes.
        self.draining = asyncio.Event()
        self.loaded = False
        self.load_error: str | None = None
        self._watch()

    def _watch(self) -> None:
        """Registers the gauges of this state."""
        watch = self.metrics.watch
        watch("sessions", "Live sessions open", lambda: self.sessions.count)
        watch(
            "sessions_limit",
            "Limit of open live sessions with default options",
            lambda: self.sessions.limit,
        )
        watch(
            "capacity_windows_per_second",
            "Windows of default streams that the machine computes; 0 if not measured",
            lambda: self.sessions.capacity.windows_per_s if self.sessions.capacity else 0.0,
        )
        watch(
            "sessions_windows_per_second",
            "Windows that open sessions ask for; 0 if the capacity was not measured",
            lambda: self.sessions.taken if self.sessions.capacity else 0.0,
        )
        watch(
            "sessions_windows_per_second_limit",
            "Windows that sessions may ask for; 0 if the capacity was not measured",
            lambda: self.sessions.total if self.sessions.capacity else 0.0,
        )
        watch("uploads", "Recordings being transcribed", lambda: self.uploads.count)
        watch("uploads_limit", "Limit of concurrent recordings", lambda: self.uploads.total)
        watch("ready", "1 if new work is accepted", lambda: float(self.ready))
        watch("draining", "1 while shutting down", lambda: float(self.draining.is_set()))
        watch(
            "heartbeat_age_seconds",
            "Time since the last sign of life of a worker",
            lambda: self.pool.heartbeat_age_s if self.loaded else 0.0,
        )

    @property
    def running(self) -> bool:
        """Whether the weights are loaded and a worker is there."""
        return self.loaded and self.pool.ready

    @property
    def ready(self) -> bool:
        """Whether new work is accepted."""
        return self.running and not self.draining.is_set()

    def check_model(self, model: str | None) -> None:
        """Raises ProtocolError unless this is the model that is loaded here; None asks for any."""
        loaded = self.pool.config.name  # not the path that it may come from
        if model not in (None, self.settings.model, loaded):
            raise ProtocolError(ErrorCode.UNKNOWN_MODEL, f"only the model {loaded} is loaded here")

    def most_sessions(self, client: Client) -> int:
        """Sessions that a client may have: if nobody set a number, it leaves half to others."""
        most = client.max_sessions or self.settings.max_sessions_per_client
        return min(MAX_SESSIONS_PER_CLIENT, _half(self.sessions.limit)) if most == "auto" else most

    def session_refusal(self, placed: bool, client_placed: bool) -> ProtocolError | None:
        """Why a session is refused; None if it is admitted."""
        fault = self._fault()
        if fault is None and not placed:
            fault = self.sessions.refusal()
        if fault is None and not client_placed:
            message = "this client has its maximum number of sessions"
            fault = ProtocolError(ErrorCode.CLIENT_LIMIT, message)
        return fault

    @contextmanager
    def upload_place(self, client: Client) -> Iterator[None]:
        """Hold a client's place while the block runs. Raises ProtocolError if there is none."""
        most = min(MAX_UPLOADS_PER_CLIENT, _half(self.settings.max_uploads))
        with (
            self.uploads.take() as placed,
            self.client_uploads.take(client, most) as client_placed,
        ):
            fault = self._fault()
            if fault is None and placed is None:
                others = self.uploads.count
                message = f"the server is busy with {_count(others, 'other recording')}"
                fault = ProtocolError(ErrorCode.TOO_MANY_UPLOADS, message)
            if fault is None and not client_placed:
                message = f"you already have {_count(most, 'upload')}, the maximum"
                fault = ProtocolError(ErrorCode.CLIENT_LIMIT, message)
            if fault is not None:
                record_refusal(self.metrics.refused, fault, client)
                raise fault
            yield

    def _fault(self) -> ProtocolError | None:
        """Why nothing is taken on; None while the service is ready."""
        if self.draining.is_set():
            return ProtocolError(ErrorCode.DRAINING, "the server is shutting down")
        if not self.running:
            return ProtocolError(ErrorCode.NOT_READY, NOT_RUNNING)
        return None


def _half(places: int) -> int:
    return max(1, places // 2)


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
