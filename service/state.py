"""State shared by the endpoints: settings, workers, admitted sessions and uploads, draining."""

import asyncio
from collections.abc import Awaitable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Protocol, TypeVar
from weakref import WeakValueDictionary

import anyio

from service.access.keys import Keys
from service.access.problems import record_rejection
from service.access.tokens import Tokens, read_secret
from service.ops.capacity import AdmissionControl, Reservation, SessionAdmissionControl
from service.ops.metrics import Metrics
from service.protocol.errors import ErrorCode, ProtocolError
from service.settings import Settings
from service.stream.windows import BatchTiming
from service.workers.pool import WorkerPool

MAX_SESSIONS_PER_CLIENT = 8
MAX_UPLOADS_PER_CLIENT = 2
MAX_RENDERED_SCORES = 2  # maximum number of scores that are rendered at once
MAX_ENDINGS = 2  # maximum number of long sessions whose files are written at once
# Maximum number of scores that wait or are being rendered, in total and per client. A client that
# may have more uploads may also have more scores.
MAX_SCORES, MAX_SCORES_PER_CLIENT = 8, 2

T = TypeVar("T")


class LiveConnection(Protocol):
    """The socket of a live session (``service.live.websocket.Connection``)."""

    @property
    def idle_s(self) -> float: ...
    @property
    def client(self) -> str: ...
    def fail(self, error: ProtocolError) -> None: ...


class ServiceState:
    """State of one application. Used only from its event loop."""

    def __init__(self, settings: Settings, pool: WorkerPool, metrics: Metrics) -> None:
        """Raises `service.access.keys.KeysError` if the API keys or the secret are invalid or
        unreadable."""
        self.settings = settings
        self.pool = pool
        self.metrics = metrics
        self.keys = Keys(settings.keys.get_secret_value(), settings.keys_file)
        self.tokens = Tokens(read_secret(settings.secret.get_secret_value(), settings.keys_file))
        self.sessions = SessionAdmissionControl(settings.max_sessions)
        self.uploads = AdmissionControl(settings.max_uploads)
        self.scores = anyio.CapacityLimiter(MAX_RENDERED_SCORES)
        self.endings = anyio.CapacityLimiter(MAX_ENDINGS)
        # One lock per client, held while one of the client's scores is rendered.
        self.score_turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self.score_requests = AdmissionControl(MAX_SCORES)
        self.connections: dict[str, LiveConnection] = {}  # by session id
        # Sockets that were accepted although no slot was free, because they may resume a session
        # that has a slot. They leave this set when they get the slot.
        self.sockets_without_slot: set[LiveConnection] = set()
        # Set when the service starts to shut down. Sessions then send their last notes.
        self.draining = asyncio.Event()
        self.loaded = False  # True once the pool's workers have loaded the model
        self.load_error: str | None = None
        watch, sessions, uploads = metrics.watch, self.sessions, self.uploads
        sessions_help = "Live sessions admitted, including those that have not started"
        watch("sessions", sessions_help, lambda: sessions.count)
        limit_help = "Maximum number of live sessions with default options"
        watch("sessions_limit", limit_help, lambda: sessions.limit)
        watch("sessions_load", "Share of the admissible load in use", lambda: sessions.load)
        watch("workers_running", "Workers that can compute now", pool.running_workers)
        watch("uploads", "Uploads in progress", lambda: uploads.count)

    @property
    def running(self) -> bool:
        """True if the model is loaded and a worker is running."""
        return self.loaded and self.pool.is_ready

    async def wait_for(self, work: Awaitable[T], timeout_s: float | None = None) -> T:
        """Return the result of an awaitable. If the service starts to drain, or ``timeout_s`` has
        passed, cancel the awaitable and raise ProtocolError or TimeoutError."""
        task = asyncio.ensure_future(work)
        draining = asyncio.create_task(self.draining.wait())
        try:
            await asyncio.wait([task, draining], timeout=timeout_s, return_when="FIRST_COMPLETED")
            self.check_draining()
            if not task.done():
                raise TimeoutError
            return task.result()
        finally:
            task.cancel()
            draining.cancel()

    def check_draining(self) -> None:
        """Raise ProtocolError if the service is draining."""
        if self.draining.is_set():
            raise ProtocolError(ErrorCode.DRAINING, "the server is shutting down")

    def check_ready(self) -> None:
        """Raise ProtocolError if the service is draining, or is not ``running``."""
        self.check_draining()
        if not self.running:
            starting = "the server is not ready: it is loading the model or restarting its workers"
            raise ProtocolError(ErrorCode.NOT_READY, self.load_error or starting)

    def check_model(self, model: str | None) -> None:
        """Raise ProtocolError unless this model is loaded. None accepts any model."""
        loaded = self.pool.config.name  # a name, even if the setting is a path
        if model not in (None, self.settings.model, loaded):
            raise ProtocolError(ErrorCode.UNKNOWN_MODEL, f"only the model {loaded} is loaded here")

    def reserve_session(self, client: str) -> AbstractContextManager[Reservation]:
        """Reserve a session slot while the block runs. Raises ProtocolError if the service is not
        ready, no slot is free, or the client has its maximum."""
        setting = self.settings.max_sessions_per_client
        default = max(1, min(MAX_SESSIONS_PER_CLIENT, self.sessions.limit // 2))
        limit = self.keys.limit(client, "sessions")
        max_count = limit or (default if setting == "auto" else setting)
        self.check_ready()
        return self.sessions.reserve(client, max_count, self.sessions.initial_size)

    def end_revoked_sessions(self) -> None:
        """Close the sessions of clients whose key has been removed."""
        for connection in list(self.connections.values()) if self.keys else ():
            if not self.keys.has_client(connection.client):
                message = "the API key of this session has been removed"
                connection.fail(ProtocolError(ErrorCode.UNAUTHORIZED, message))

    def reserve_upload(self, client: str) -> AbstractContextManager[Reservation]:
        """Reserve an upload slot while the block runs. Raises ProtocolError if the service is not
        ready, no slot is free, or the client has its maximum."""
        return self._reserve(self.uploads, client, self._max_uploads(client))

    def _max_uploads(self, client: str) -> int:
        default = max(1, min(MAX_UPLOADS_PER_CLIENT, self.settings.max_uploads // 2))
        setting = self.settings.max_uploads_per_client
        return self.keys.limit(client, "uploads") or (default if setting == "auto" else setting)

    def reserve_score(self, client: str) -> AbstractContextManager[Reservation]:
        """Reserve a score slot while the block runs. Raises the errors of ``reserve_upload``."""
        # A client with more uploads, such as a class that shares a key, may have more scores too.
        max_count = max(MAX_SCORES_PER_CLIENT, self._max_uploads(client))
        return self._reserve(self.score_requests, client, max_count)

    @contextmanager
    def _reserve(
        self, control: AdmissionControl, client: str, max_count: int
    ) -> Iterator[Reservation]:
        with ExitStack() as stack:
            try:
                self.check_ready()
                slot = stack.enter_context(control.reserve(client, max_count))
            except ProtocolError as rejection:
                record_rejection(self.metrics.refused, rejection, client)
                raise
            yield slot

    # -- callbacks of the pool --------------------------------------------------------------------

    def on_batch(self, timing: BatchTiming) -> None:
        self.metrics.on_batch(timing)
        self.sessions.update_cost(timing)

    def on_worker_exit(self) -> None:
        self.metrics.worker_restarts.inc()
