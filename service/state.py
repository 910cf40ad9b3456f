"""State shared by the endpoints: settings, workers, admitted sessions and uploads, draining."""

import asyncio
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager

import anyio

from service.access.clients import Client, Reservation, Room
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
        self.uploads = Room(settings.max_uploads)
        self.scores = anyio.CapacityLimiter(1)  # written at one time
        # Set once, at the first SIGTERM; sessions watch it to end with their last notes.
        self.draining = asyncio.Event()
        self.loaded = False
        self.load_error: str | None = None
        self._watch()

    def _watch(self) -> None:
        """Registers the gauges of this state."""
        watch, sessions, uploads = self.metrics.watch, self.sessions, self.uploads
        watch("sessions", "Live sessions open", lambda: sessions.count)
        watch(
            "sessions_limit",
            "Limit of open live sessions with default options",
            lambda: sessions.limit,
        )
        watch(
            "sessions_load",
            "Part of the room for live sessions that is taken",
            lambda: sessions.taken / (sessions.total or 1),
        )
        watch("uploads", "Recordings being transcribed", lambda: uploads.count)
        watch("uploads_limit", "Limit of concurrent recordings", lambda: uploads.total)
        watch("ready", "1 if new work is accepted", lambda: self.ready)
        watch("draining", "1 while shutting down", self.draining.is_set)

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

    def session_place(self, client: Client) -> AbstractContextManager[Reservation]:
        """Hold a client's place while the block runs. Raises ProtocolError if there is none."""
        size = self.sessions.first_size
        return self._place(self.sessions, client, self.most_sessions(client), size)

    def upload_place(self, client: Client) -> AbstractContextManager[Reservation]:
        """The same of an upload."""
        most = min(MAX_UPLOADS_PER_CLIENT, _half(self.settings.max_uploads))
        return self._place(self.uploads, client, most)

    @contextmanager
    def _place(
        self, room: Room, client: Client, most: int, size: float = 1.0
    ) -> Iterator[Reservation]:
        with ExitStack() as stack:
            try:
                if self.draining.is_set():
                    raise ProtocolError(ErrorCode.DRAINING, "the server is shutting down")
                if not self.running:
                    raise ProtocolError(ErrorCode.NOT_READY, NOT_RUNNING)
                place = stack.enter_context(room.take(client, most, size))
            except ProtocolError as refusal:
                record_refusal(self.metrics.refused, refusal, client)
                raise
            yield place


def _half(places: int) -> int:
    return max(1, places // 2)
