"""The live endpoint: one socket, one session (PROTOCOL.md).

The endpoint forwards audio to the session's worker, and the worker's messages to the client. One
task reads from the socket, and another writes to it. After `stop`, and when the service drains, the
worker still transcribes all audio that it has received.
"""

import asyncio
import contextlib
import logging
import secrets
from collections.abc import Awaitable

from fastapi import APIRouter
from starlette.websockets import WebSocket, WebSocketDisconnect

from service.access.keys import SCOPE_KEY
from service.access.problems import chosen_subprotocol, reject_websocket
from service.live.receiving import (
    MAX_MESSAGE_BYTES,
    ClientDisconnectedError,
    ReadAhead,
    message_payload,
)
from service.live.session_log import SessionLog
from service.ops.capacity import Reservation
from service.protocol.client_messages import (
    Flush,
    Keepalive,
    Start,
    Stop,
    parse_message,
    parse_query,
)
from service.protocol.errors import ErrorCode, ProtocolError, internal_error
from service.protocol.options import AudioFormat, StreamOptions, file_format
from service.protocol.server_messages import Error, Limits
from service.state import ServiceState
from service.workers.connection import MAX_BUFFERED_S, SessionProxy
from service.workers.messages import OpenSession

logger = logging.getLogger(__name__)
router = APIRouter()

MAX_PACE, BURST_S = 10.0, 10.0  # maximum seconds of audio per second, after a burst of 10 s
# The pace limit is never lower than this rate, so that a ping waits for at most 20 s behind the
# 4 MB of audio that may be in flight.
MIN_READ_BYTES_PER_S = 256_000
SEND_TIMEOUT_S = 10.0  # maximum time for sending a message to a client that does not read
CLOSE_TIMEOUT_S = 1.0  # maximum time for sending a last error, and for closing the socket
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
            if not may_resume_ghost(state, rejection):
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
        self._message_s = self._audio_s = self._loop.time()  # times of the latest message and audio
        self._is_paused = False
        self._session: SessionProxy | None = None

    @property
    def idle_s(self) -> float:
        """Seconds since the latest message; 0 while messages wait to be processed."""
        return 0.0 if self._is_paused else self._loop.time() - self._message_s

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
        try:
            start = await self._receive_start()
            close_code, reason = await self._run_session(start)
        except ProtocolError as error:
            self._log.failed(error)
            close_code, reason = error.code.close_code, error.code
            if error.code is not ErrorCode.SLOW_READER:  # a slow reader would not read the error
                await self._send_error(error)
        except ClientDisconnectedError:
            self._log.closed("vanished")
            return
        except Exception:
            logger.exception("the session failed")
            internal = internal_error()
            close_code, reason = internal.code.close_code, internal.code
            await self._send_error(internal)
        self._log.closed(reason)
        with contextlib.suppress(WebSocketDisconnect, RuntimeError, TimeoutError):
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
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
            received = await self._service.wait_for(self._websocket.receive(), idle_s)
        except TimeoutError:
            raise ProtocolError(ErrorCode.IDLE_TIMEOUT, f"no message for {idle_s:g} s") from None
        return message_payload(received)

    def _open(self, start: Start) -> SessionProxy:
        """Open the session at a worker. If an older connection has the session, end it and release
        its slot. Raises ProtocolError if the options conflict or there is no capacity for them."""
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
            session_id=session_id,
            audio=start.audio(),
            options=options,
            limits=Limits(
                max_message_bytes=MAX_MESSAGE_BYTES,
                max_session_s=settings.max_session_s,
                idle_timeout_s=settings.idle_timeout_s,
                max_buffered_ms=1000 * MAX_BUFFERED_S,
            ),
            overload_lag_s=settings.overload_lag_s,
            resume=resume,
            updates=start.updates,
            frames=start.frames,
            beats=start.beats,
        )
        fields = start.model_dump(mode="json", exclude={"type", "resume"}, exclude_none=True)
        start_s = resume.from_sample / start.sample_rate if resume else 0.0
        self._log.opening(session_id, start_s, resumed=resume is not None, **fields)
        self._session = service.pool.open_session(opening)
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
        draining = asyncio.create_task(self._end_when_draining(session, reader))
        try:
            while True:
                output = await session.next_output()
                self._log.record_output(output)
                for message in output.messages:
                    await self._send(message)
                if output.final_state is not None:
                    reason, close_code, _ = output.final_state
                    return close_code, reason
        finally:
            reader.cancel()
            draining.cancel()
            session.close()

    async def _read(self, session: SessionProxy, audio: AudioFormat) -> None:
        """Forward the client's messages until `stop`, an error, a time limit or a disconnect."""
        try:
            async with (
                asyncio.timeout_at(self._end_s),
                ReadAhead(self._websocket.receive) as messages,
            ):
                await self._read_to_end(session, audio, messages)
        except TimeoutError:
            session.end("error", self._too_long("s"))
        except ProtocolError as error:
            session.end("error", error)
        except Exception as error:  # ClientDisconnectedError, or an internal error
            session.fail(error)

    async def _read_to_end(
        self, session: SessionProxy, audio: AudioFormat, messages: ReadAhead
    ) -> None:
        """Forward messages until `stop`. Raises ProtocolError and ClientDisconnectedError."""
        started_s = self._loop.time()
        received_s, byte_rate = 0.0, audio.byte_rate  # s of audio received; bytes per s
        pace = max(MAX_PACE, MIN_READ_BYTES_PER_S / byte_rate)
        is_first = True
        while True:
            message = await self._next_message(messages)
            self._message_s = self._loop.time()
            if isinstance(message, bytes):
                self._audio_s = self._message_s
                if is_first and (name := file_format(message)):
                    advice = f"the audio is {name}, not PCM: decode it, or upload it as a file"
                    raise ProtocolError(ErrorCode.BAD_AUDIO, advice)
                is_first = False
                duration_s = len(message) / byte_rate
                received_s += duration_s
                if received_s > self._settings.max_session_s:
                    raise self._too_long("s of audio")
                self._log.record_audio(duration_s)
                if session.is_full:
                    await self._pause(session.wait_until_writable())
                session.send(message)
                # Faster audio is not an error: backpressure through the socket slows the client.
                allowed_s = BURST_S + pace * (self._audio_s - started_s)
                if received_s > allowed_s:
                    await self._pause(asyncio.sleep((received_s - allowed_s) / pace))
                continue
            match parsed := parse_message(message):
                case Flush():
                    await self._pause(session.wait_until_writable())
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

    async def _next_message(self, messages: ReadAhead) -> bytes | str:
        limit_s = self._settings.idle_timeout_s
        error = f"no message for {limit_s:g} s"
        keepalive_s = self._audio_s + MAX_KEEPALIVE_S - self._loop.time()
        if keepalive_s < limit_s:
            limit_s, error = keepalive_s, f"no audio for {MAX_KEEPALIVE_S:g} s"
        try:
            async with asyncio.timeout(limit_s):
                return message_payload(await messages.next())
        except TimeoutError:
            raise ProtocolError(ErrorCode.IDLE_TIMEOUT, error) from None

    async def _pause(self, waiting: Awaitable[None]) -> None:
        """Wait without processing messages. This time does not count as the client's idle time."""
        started_s, self._is_paused = self._loop.time(), True
        await waiting
        self._message_s, self._is_paused = self._loop.time(), False
        self._audio_s += self._message_s - started_s

    def _too_long(self, unit: str) -> ProtocolError:
        limit = f"session limit reached: {self._settings.max_session_s:g} {unit}"
        return ProtocolError(ErrorCode.SESSION_TOO_LONG, f"{limit}; open a new session")

    async def _end_when_draining(self, session: SessionProxy, reader: asyncio.Task[None]) -> None:
        await self._service.draining.wait()
        session.end("draining")
        reader.cancel()

    async def _send(self, text: str) -> None:
        """Send a message. Raises ProtocolError if the client does not read, and
        ClientDisconnectedError if it has disconnected."""
        try:
            async with asyncio.timeout(SEND_TIMEOUT_S):
                await self._websocket.send_text(text)
        except TimeoutError:
            message = f"the client has read nothing for {SEND_TIMEOUT_S:g} s"
            raise ProtocolError(ErrorCode.SLOW_READER, message) from None
        except (WebSocketDisconnect, RuntimeError):  # RuntimeError: uvicorn has closed the socket
            raise ClientDisconnectedError from None
