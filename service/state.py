"""State shared by the endpoints: settings, workers, admitted sessions and uploads, draining."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager

import anyio

from service.access.keys import Keys
from service.access.problems import record_refusal
from service.access.tokens import Tokens, read_secret
from service.ops.capacity import Reservation, Room, SessionRoom
from service.ops.metrics import Metrics
from service.protocol.faults import ErrorCode, ProtocolError
from service.protocol.options import StreamOptions
from service.settings import Settings
from service.stream.windows import Computer
from service.workers.pool import Pool

MAX_SESSIONS_PER_CLIENT = 8
MAX_UPLOADS_PER_CLIENT = 2
MAX_SCORES, MAX_SCORES_PER_CLIENT = 8, 2  # requests that are received, wait or are rendered


class ServiceState:
    """One per application, made at its start; used only from its event loop.

    Attributes:
        pool: the workers; their model is known once ``loaded``.
        load_error: why there will be no model.
    """

    def __init__(self, settings: Settings, pool: Pool, metrics: Metrics) -> None:
        """Raises `service.access.keys.KeysError` if the API keys or the secret cannot be read."""
        self.settings = settings
        self.pool = pool
        self.metrics = metrics
        self.keys = Keys(settings.keys.get_secret_value(), settings.keys_file)
        self.tokens = Tokens(read_secret(settings.secret.get_secret_value(), settings.keys_file))
        self.sessions = SessionRoom(settings.max_sessions)
        self.uploads = Room(settings.max_uploads)
        self.scores = anyio.CapacityLimiter(1)  # scores rendered at the same time
        self.score_requests = Room(MAX_SCORES)
        # Set once, at the first SIGTERM; sessions watch it to end with their last notes.
        self.draining = asyncio.Event()
        self.loaded = False
        self.load_error: str | None = None
        watch, sessions, uploads = metrics.watch, self.sessions, self.uploads
        watch("sessions", "Live sessions open", lambda: sessions.count)
        watch("sessions_limit", "Most live sessions of default options", lambda: sessions.limit)
        watch(
            "sessions_load",
            "Part of the room for live sessions that is taken",
            lambda: sessions.taken / (sessions.total or 1),
        )
        watch("uploads", "Recordings being transcribed", lambda: uploads.count)

    @property
    def running(self) -> bool:
        """Whether the weights are loaded and a worker is there."""
        return self.loaded and self.pool.ready

    def check_ready(self) -> None:
        """Raises ProtocolError unless new work is accepted."""
        if self.draining.is_set():
            raise ProtocolError(ErrorCode.DRAINING, "the server is shutting down")
        if not self.running:
            why = self.load_error or "the model is not loaded yet, or has failed"
            raise ProtocolError(ErrorCode.NOT_READY, why)

    def check_model(self, model: str | None) -> None:
        """Raises ProtocolError unless this is the model that is loaded here; None asks for any."""
        loaded = self.pool.config.name  # not the path that it may come from
        if model not in (None, self.settings.model, loaded):
            raise ProtocolError(ErrorCode.UNKNOWN_MODEL, f"only the model {loaded} is loaded here")

    def piano_engine(self, model: str | None) -> Callable[[], Computer] | None:
        """Return a function that returns the model for pianos; None if a request for this model
        excludes it, or there is none."""
        piano = self.pool.piano
        return None if piano is None or model not in (None, "auto") else lambda: piano

    def session_place(self, client: str) -> AbstractContextManager[Reservation]:
        """Hold a client's place while the block runs. Raises ProtocolError if there is none."""
        half = max(1, min(MAX_SESSIONS_PER_CLIENT, self.sessions.limit // 2))
        setting = self.settings.max_sessions_per_client
        most = self.keys.limit(client, "sessions") or (half if setting == "auto" else setting)
        return self._place(self.sessions, client, most, self.sessions.size(StreamOptions()))

    def upload_place(self, client: str) -> AbstractContextManager[Reservation]:
        """Reserve a slot for an upload while the block runs. Raises ProtocolError."""
        return self._place(self.uploads, client, self._max_uploads(client))

    def _max_uploads(self, client: str) -> int:
        half = max(1, min(MAX_UPLOADS_PER_CLIENT, self.settings.max_uploads // 2))
        setting = self.settings.max_uploads_per_client
        return self.keys.limit(client, "uploads") or (half if setting == "auto" else setting)

    def score_place(self, client: str) -> AbstractContextManager[Reservation]:
        """Reserve a slot for a score while the block runs. Raises ProtocolError."""
        most = max(MAX_SCORES_PER_CLIENT, self._max_uploads(client))  # a class has as many of both
        return self._place(self.score_requests, client, most)

    @contextmanager
    def _place(
        self, room: Room, client: str, most: int, size: float = 1.0
    ) -> Iterator[Reservation]:
        with ExitStack() as stack:
            try:
                self.check_ready()
                place = stack.enter_context(room.take(client, most, size))
            except ProtocolError as refusal:
                record_refusal(self.metrics.refused, refusal, client)
                raise
            yield place
