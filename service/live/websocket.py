"""The live endpoint: one socket, one session (PROTOCOL.md).

The endpoint forwards audio to the session's worker, and the worker's messages to the client. One
task reads from the socket, one writes to it, and one ends the audio at a time limit or when the
service drains. After the end, the worker still transcribes all audio that it has received.
"""

import asyncio
import contextlib
import logging
import secrets
from operator import itemgetter

from anyio import to_process
from fastapi import APIRouter
from starlette.websockets import WebSocket, WebSocketDisconnect

from service.access.keys import SCOPE_KEY
from service.access.problems import chosen_subprotocol, proxy_can_retry, reject_websocket
from service.live.session import (
    MAX_BUFFERED_S,
    MAX_MESSAGE_BYTES,
    ClientDisconnectedError,
    Receiver,
    SessionProxy,
)
from service.ops.capacity import Reservation
from service.ops.session_log import SessionLog
from service.protocol.client_messages import (
    Flush,
    Keepalive,
    Start,
    Stop,
    parse_message,
    parse_query,
)
from service.protocol.errors import ErrorCode, ProtocolError, internal_error
from service.protocol.options import FORMAT_BYTES, AudioFormat, StreamOptions, file_format
from service.protocol.server_messages import Error, Limits
from service.state import ServiceState
from service.stream.ending import pickled_done
from service.stream.session import OpenSession

logger = logging.getLogger(__name__)
router = APIRouter()

MAX_PACE, BURST_S = 10.0, 10.0  # maximum seconds of audio per second, after a burst of 10 s
# The pace limit is never lower than this rate, so that a ping waits for at most 20 s behind the
# 4 MB of audio that may be in flight.
MIN_READ_BYTES_PER_S = 256_000
SEND_TIMEOUT_S = 10.0  # maximum time for sending an output to a client that does not read
CLOSE_TIMEOUT_S = 1.0  # maximum time for sending a last error, and then for closing the socket
MAX_KEEPALIVE_S = 600.0  # maximum time without audio, even if keepalives arrive
# A ghost is a dead connection that the server has not noticed yet. It occupies a slot, while its
# client may be reconnecting to resume the session.
GHOST_IDLE_S = 1.0  # time without a message after which a connection may be a ghost
GHOST_START_S = 5.0  # maximum time for the `start` of a socket without a slot
MAX_SOCKETS_WITHOUT_SLOT = 8


@router.websocket("/ws/transcribe")
async def transcribe_live(websocket: WebSocket) -> None:
    """Accept a client and run its session, or reject it with a reason."""
    state: ServiceState = websocket.app.state.service
    client = websocket.scope[SCOPE_KEY]
    log = SessionLog(state.metrics, client)
    with contextlib.ExitStack() as slots:
        reservation: Reservation | None = None
        try:
            reservation = slots.enter_context(state.reserve_session(client))
        except ProtocolError as rejection:
            if proxy_can_retry(websocket, rejection) or not may_resume_ghost(state, rejection):
                log.failed(rejection)
                await reject_websocket(websocket, rejection)
                return
        connection = Connection(websocket, state, slots, reservation, log)
        if reservation is None:
            state.sockets_without_slot.add(connection)
        try:
            await websocket.accept(subprotocol=chosen_subprotocol(websocket))
            await connection.run()
        finally:
            state.sockets_without_slot.discard(connection)
            log.closed("cancelled")  # no effect if `run` has recorded the end


def may_resume_ghost(state: ServiceState, rejection: ProtocolError) -> bool:
    """True if the rejected client may be resuming a session whose slot a ghost still occupies."""
    full = rejection.code in (ErrorCode.TOO_MANY_SESSIONS, ErrorCode.CLIENT_LIMIT)
    has_ghosts = any(other.idle_s > GHOST_IDLE_S for other in state.connections.values())
    return full and has_ghosts and len(state.sockets_without_slot) < MAX_SOCKETS_WITHOUT_SLOT


class Connection:
    """One socket, from `start` to the close (``service.state.LiveConnection``)."""

    def __init__(
        self,
        websocket: WebSocket,
        state: ServiceState,
        slots: contextlib.ExitStack,
        reservation: Reservation | None,
        log: SessionLog,
    ) -> None:
        """reservation: the client's slot, or None if no slot was free. slots: exit stack that
        releases a slot reserved later."""
        self._websocket = websocket
        self._slots, self._reservation = slots, reservation
        self._log = log
        self._service = state
        self._settings = state.settings
        self._loop = asyncio.get_running_loop()
        self._end_s = self._loop.time() + state.settings.max_session_s
        self._receiver = Receiver(websocket.receive)
        self._session: SessionProxy | None = None

    @property
    def idle_s(self) -> float:
        return self._receiver.idle_s

    @property
    def client(self) -> str:
        return str(self._websocket.scope[SCOPE_KEY])

    def fail(self, error: ProtocolError) -> None:
        if self._reservation is not None:
            self._reservation.release()
        if self._session is not None:
            self._session.fail(error)

    async def run(self) -> None:
        """Serve the client until its session has ended."""
        close_timeout_s = SEND_TIMEOUT_S  # the client may still be reading a large `done`
        try:
            start = await self._receive_start()
            close_code, reason = await self._run_session(start)
        except ClientDisconnectedError:
            self._log.closed("vanished")
            return
        except Exception as error:
            if not isinstance(error, ProtocolError):
                logger.exception("the session failed")
                error = internal_error()
            self._log.failed(error)
            close_code, reason = error.code.close_code, error.code
            close_timeout_s = CLOSE_TIMEOUT_S
            if error.code is not ErrorCode.SLOW_READER:  # a slow reader would not read the error
                await self._send_error(error)
        self._log.closed(reason)
        with contextlib.suppress(WebSocketDisconnect, RuntimeError, TimeoutError):
            async with asyncio.timeout(close_timeout_s):
                await self._websocket.close(close_code, reason)

    async def _send_error(self, error: ProtocolError) -> None:
        """Send an error as the last message of a session that ends without `done`."""
        message = Error.of(error)
        message.seq = self._log.messages
        with contextlib.suppress(ClientDisconnectedError, ProtocolError, TimeoutError):
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                await self._send(message.model_dump_json(exclude_none=True))

    # -- start ------------------------------------------------------------------------------------

    async def _receive_start(self) -> Start:
        start = parse_query(self._websocket.query_params.multi_items())
        if start is None:
            message = await self._first_message()
            if isinstance(message, bytes):
                raise ProtocolError(
                    ErrorCode.NOT_STARTED, "the first message must be start, not audio"
                )
            parsed = parse_message(message)
            if not isinstance(parsed, Start):
                detail = f"the first message must be start, not {parsed.type}"
                raise ProtocolError(ErrorCode.NOT_STARTED, detail)
            start = parsed
        self._service.check_model(start.model)
        return start

    async def _first_message(self) -> bytes | str:
        idle_s = GHOST_START_S if self._reservation is None else self._settings.idle_timeout_s
        try:
            return await self._service.wait_for(self._receiver.next(), idle_s)
        except TimeoutError:
            raise ProtocolError(ErrorCode.IDLE_TIMEOUT, f"no message for {idle_s:g} s") from None

    def _open(self, start: Start) -> SessionProxy:
        """Open the session at a worker. If an older connection has the session, end it and release
        its slot. Raises ProtocolError if options conflict, or if no slot or worker is available."""
        service, settings = self._service, self._settings
        options, resume = start.options(StreamOptions()), start.resume
        session_id = resume.session_id if resume else secrets.token_hex(8)
        if (older := service.connections.pop(session_id, None)) is not None:
            message = "another connection has resumed this session"
            older.fail(ProtocolError(ErrorCode.REPLACED, message))
        if self._reservation is None:
            slot = service.reserve_session(self.client)
            self._reservation = self._slots.enter_context(slot)
            service.sockets_without_slot.discard(self)
        if not self._reservation.resize(service.sessions.size(options)):
            raise service.sessions.rejection(options)
        opening = OpenSession(
            start=start,
            session_id=session_id,
            limits=Limits(
                max_message_bytes=MAX_MESSAGE_BYTES,
                max_session_s=settings.max_session_s,
                idle_timeout_s=settings.idle_timeout_s,
                max_buffered_ms=1000 * MAX_BUFFERED_S,
            ),
            overload_lag_s=settings.overload_lag_s,
        )
        fields = start.model_dump(mode="json", exclude={"type", "resume"}, exclude_none=True)
        start_s = resume.from_sample / start.sample_rate if resume else 0.0
        self._log.opening(session_id, start_s, resumed=resume is not None, **fields)
        pool = service.pool
        self._session = SessionProxy(opening, pool.config, pool.least_loaded())
        service.connections[session_id] = self
        self._slots.callback(self._forget, session_id)
        return self._session

    def _forget(self, session_id: str) -> None:
        if self._service.connections.get(session_id) is self:
            del self._service.connections[session_id]

    # -- the session ------------------------------------------------------------------------------

    async def _run_session(self, start: Start) -> tuple[int, str]:
        """Run the session from `ready` to `done`. Return the close code and the reason."""
        session = self._open(start)
        reader = asyncio.create_task(self._read(session, start.audio()))
        watcher = asyncio.create_task(self._watch(session, reader))
        try:
            while True:
                output = await session.next_output()
                self._log.record_output(output)
                await self._send(*output.messages)
                if output.final_state is not None:
                    if output.ending is not None:
                        done = await to_process.run_sync(
                            pickled_done,
                            output.ending,
                            cancellable=True,
                            limiter=self._service.endings,
                        )
                        await self._send(done)
                    reason, close_code, _ = output.final_state
                    return close_code, reason
        finally:
            reader.cancel()
            watcher.cancel()
            session.close()

    async def _read(self, session: SessionProxy, audio: AudioFormat) -> None:
        """Forward the client's messages until `stop`, an error or a disconnect."""
        try:
            await self._read_to_end(session, audio)
        except ProtocolError as error:
            session.end("error", error)
        except Exception as error:  # ClientDisconnectedError, or an internal error
            session.fail(error)

    async def _read_to_end(self, session: SessionProxy, audio: AudioFormat) -> None:
        """Forward messages until `stop`. Raises ProtocolError and ClientDisconnectedError."""
        started_s = self._loop.time()
        received_s, byte_rate = 0.0, audio.byte_rate  # s of audio received; bytes per s
        pace = max(MAX_PACE, MIN_READ_BYTES_PER_S / byte_rate)
        head = b""  # first bytes of the audio
        while True:
            message = await self._receiver.next()
            if isinstance(message, bytes):
                if len(head) < FORMAT_BYTES:
                    head += message[:FORMAT_BYTES]
                    if name := file_format(head):
                        advice = f"the audio is {name}, not PCM: decode it, or upload it as a file"
                        raise ProtocolError(ErrorCode.BAD_AUDIO, advice)
                duration_s = len(message) / byte_rate
                received_s += duration_s
                if received_s > self._settings.max_session_s:
                    raise self._too_long("s of audio")
                self._log.record_audio(duration_s)
                if session.is_full:
                    await self._receiver.pause(session.wait_until_writable())
                session.send(message)
                # Faster audio is not an error: backpressure through the socket slows the client.
                allowed_s = BURST_S + pace * (self._loop.time() - started_s)
                if received_s > allowed_s:
                    await self._receiver.pause(asyncio.sleep((received_s - allowed_s) / pace))
                continue
            match parsed := parse_message(message):
                case Flush():
                    await self._receiver.pause(session.wait_until_writable())
                    session.flush(parsed.id)
                case Keepalive():
                    pass
                case Stop():
                    session.end("stop")
                    return
                case Start():
                    raise ProtocolError(
                        ErrorCode.ALREADY_STARTED, "the session has started; open another socket"
                    )

    async def _watch(self, session: SessionProxy, reader: asyncio.Task[None]) -> None:
        """End the audio when the service drains, or at a time limit."""
        while True:
            rest_s, error = self._next_limit()
            if rest_s <= 0:
                session.end("error", error)
                break
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(rest_s):
                    await self._service.draining.wait()
                    session.end("draining")
                    break
        reader.cancel()

    def _next_limit(self) -> tuple[float, ProtocolError]:
        """Return the seconds until the next limit if no message arrives, and the limit's error."""
        code, idle_s = ErrorCode.IDLE_TIMEOUT, self._settings.idle_timeout_s
        no_message = ProtocolError(code, f"no message for {idle_s:g} s")
        no_audio = ProtocolError(code, f"no audio for {MAX_KEEPALIVE_S:g} s")
        return min(
            (self._end_s - self._loop.time(), self._too_long("s")),
            (idle_s - self._receiver.idle_s, no_message),
            (MAX_KEEPALIVE_S - self._receiver.without_audio_s, no_audio),
            key=itemgetter(0),
        )

    def _too_long(self, unit: str) -> ProtocolError:
        limit = f"session limit reached: {self._settings.max_session_s:g} {unit}"
        return ProtocolError(ErrorCode.SESSION_TOO_LONG, f"{limit}; open a new session")

    async def _send(self, *messages: str) -> None:
        """Send messages. Raises ProtocolError if the client does not read, and
        ClientDisconnectedError if it has disconnected."""
        try:
            async with asyncio.timeout(SEND_TIMEOUT_S):
                for message in messages:
                    await self._websocket.send_text(message)
        except TimeoutError:
            error = f"the client has not read the latest messages within {SEND_TIMEOUT_S:g} s"
            raise ProtocolError(ErrorCode.SLOW_READER, error) from None
        except (WebSocketDisconnect, RuntimeError):  # RuntimeError: uvicorn has closed the socket
            raise ClientDisconnectedError from None
