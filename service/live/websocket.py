"""The live endpoint: one socket, one session (PROTOCOL.md).

This side moves bytes: audio to the session's worker, its messages to the client. One task reads,
one writes, and one ends what is silent, too long, or left when the service drains. However a
session ends, the audio that came before is transcribed first.
"""

import asyncio
import contextlib
import logging
import secrets
from collections.abc import Awaitable, MutableMapping
from operator import itemgetter
from typing import Any

from fastapi import APIRouter
from starlette.websockets import WebSocket, WebSocketDisconnect

from service.access.keys import SCOPE_KEY
from service.access.problems import chosen_subprotocol, refuse
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
from service.protocol.faults import ErrorCode, ProtocolError, internal_error
from service.protocol.options import AudioFormat, StreamOptions, file_format
from service.protocol.server_messages import Error, Limits
from service.state import ServiceState
from service.workers.link import MAX_BUFFERED_S, Relay
from service.workers.messages import Known, Open

logger = logging.getLogger(__name__)
router = APIRouter()

MAX_MESSAGE_BYTES = 1024 * 1024  # 5 s of 48 kHz float32
MAX_PACE, BURST_S = 10.0, 10.0  # seconds of audio per second, after the first 10 s
# Bytes a second that are always taken, so that a ping waits for at most 20 s behind the 4 MB that
# may be under way.
LEAST_PACE_BYTES = 256_000
SEND_TIMEOUT_S = 10.0  # for a message that its client does not read
KEPT_ALIVE_S = 600.0  # without audio
CLOSE_PATIENCE_S = 1.0  # for a client to accept the close frame


class VanishedError(Exception):
    """The client has disconnected."""


@router.websocket("/ws/transcribe")
async def transcribe_live(websocket: WebSocket) -> None:
    """Admits a client, or refuses it with a reason."""
    state: ServiceState = websocket.app.state.service
    client = websocket.scope[SCOPE_KEY]
    with contextlib.ExitStack() as stack:
        try:
            place = stack.enter_context(state.session_place(client))
        except ProtocolError as refusal:
            await refuse(websocket, refusal)
            return
        await websocket.accept(subprotocol=chosen_subprotocol(websocket))
        log = SessionLog(state.metrics, client)
        try:
            await Connection(websocket, state, place, log).run()
        finally:
            log.closed("cancelled")  # no effect after a regular end


class Connection:
    """One accepted socket, from `start` to the close."""

    def __init__(
        self, websocket: WebSocket, state: ServiceState, place: Reservation, log: SessionLog
    ) -> None:
        self._websocket = websocket
        self._place = place
        self._log = log
        self._service = state
        self._settings = state.settings
        self._loop = asyncio.get_running_loop()
        self._deadline_s = self._loop.time() + state.settings.max_session_s
        self._message_s = self._audio_s = self._loop.time()  # of the last of each
        self._holds = False

    async def run(self) -> None:
        """Serves the client; the session has always ended when this returns."""
        try:
            start = await self._start()
            close_code, reason = await self._converse(start)
        except ProtocolError as error:
            # Before `ready` no notes are owed; a slow reader would not read them.
            self._log.failed(error)
            close_code, reason = error.code.close_code, error.code
            if error.code is not ErrorCode.SLOW_READER:
                await self._send_error(error)
        except VanishedError:
            self._log.closed("vanished")
            return
        except Exception:
            logger.exception("the session failed")
            fault = internal_error()
            close_code, reason = fault.code.close_code, fault.code
            await self._send_error(fault)
        self._log.closed(reason)
        with contextlib.suppress(WebSocketDisconnect, RuntimeError, TimeoutError):
            async with asyncio.timeout(CLOSE_PATIENCE_S):
                await self._websocket.close(close_code, reason)

    async def _send_error(self, error: ProtocolError) -> None:
        """Sends the last message to a client whose session did not end regularly."""
        message = Error.of(error)
        message.seq = self._log.messages
        with contextlib.suppress(VanishedError, ProtocolError, TimeoutError):
            async with asyncio.timeout(CLOSE_PATIENCE_S):
                await self._send(message.model_dump_json(exclude_none=True))

    # -- the beginning ----------------------------------------------------------------------------

    async def _start(self) -> Start:
        start = parse_query(self._websocket.query_params.multi_items())
        if start is None:
            message = await self._first_message()
            if isinstance(message, bytes):
                raise ProtocolError(ErrorCode.NOT_STARTED, "audio came before start")
            parsed = parse_message(message)
            if not isinstance(parsed, Start):
                raise ProtocolError(ErrorCode.NOT_STARTED, f"{parsed.type} came before start")
            start = parsed
        self._service.check_model(start.model)
        return start

    async def _first_message(self) -> bytes | str:
        receiving = asyncio.create_task(self._websocket.receive())
        draining = asyncio.create_task(self._service.draining.wait())
        idle_s = self._settings.idle_timeout_s
        try:
            await asyncio.wait({receiving, draining}, timeout=idle_s, return_when="FIRST_COMPLETED")
            if draining.done():
                raise ProtocolError(ErrorCode.DRAINING, "the server is shutting down")
            if not receiving.done():
                raise ProtocolError(ErrorCode.IDLE_TIMEOUT, f"no message for {idle_s:g} s")
            return content_of(receiving.result())
        finally:
            receiving.cancel()
            draining.cancel()

    def _open(self, start: Start) -> Relay:
        """Raises ProtocolError if there is no room for these options."""
        sessions, settings = self._service.sessions, self._settings
        options = start.options(StreamOptions())
        if not self._place.resize(sessions.size(options)):
            raise sessions.refusal(options)
        resume = start.resume
        begin_s = resume.from_sample / start.sample_rate if resume else 0.0
        opening = Open(
            session_id=resume.session_id if resume else secrets.token_hex(8),
            audio=start.audio(),
            options=options,
            limits=Limits(
                max_message_bytes=MAX_MESSAGE_BYTES,
                max_session_s=settings.max_session_s,
                idle_timeout_s=settings.idle_timeout_s,
                max_buffered_ms=1000 * MAX_BUFFERED_S,
            ),
            known=Known(checkpoint=resume, skip=resume.known_events if resume else 0),
            updates=start.updates,
            heat=start.frames,
            beats=start.beats,
        )
        asked = start.model_dump(mode="json", exclude={"type", "resume"}, exclude_none=True)
        resumed = resume is not None
        self._log.opening(opening.session_id, begin_s, resumed=resumed, **asked)
        return self._service.pool.open_session(opening)

    # -- the session ------------------------------------------------------------------------------

    async def _converse(self, start: Start) -> tuple[int, str]:
        """Runs the session from `ready` to `done`; returns the close code and reason."""
        session = self._open(start)
        reader = asyncio.create_task(self._read(session, start.audio()))
        watcher = asyncio.create_task(self._watch(session, reader))
        try:
            while True:
                said = await session.said()
                self._log.said(said)
                for text in said.texts:
                    await self._send(text)
                if said.ended is not None:
                    reason, close_code, _ = said.ended
                    return close_code, reason
        finally:
            reader.cancel()
            watcher.cancel()
            self._service.pool.close_session(session)

    async def _read(self, session: Relay, audio: AudioFormat) -> None:
        """Passes the client's messages on, up to its last."""
        try:
            await self._read_to_end(session, audio)
        except ProtocolError as error:
            session.end("error", error)
        except Exception as error:  # VanishedError, or a fault
            session.give_up(error)

    async def _read_to_end(self, session: Relay, audio: AudioFormat) -> None:
        receive, began_s = self._websocket.receive, self._loop.time()
        received_s, byte_rate = 0.0, audio.byte_rate
        pace = max(MAX_PACE, LEAST_PACE_BYTES / byte_rate)
        first = True
        while True:
            message = content_of(await receive())
            self._message_s = now_s = self._loop.time()
            if isinstance(message, bytes):
                if first and (name := file_format(message)):
                    advice = f"this is {name}, not PCM: decode it first, or upload it as a file"
                    raise ProtocolError(ErrorCode.BAD_AUDIO, advice)
                first = False
                self._audio_s = now_s
                duration_s = len(message) / byte_rate
                received_s += duration_s
                if received_s > self._settings.max_session_s:
                    raise self._too_long("of audio")
                self._log.arrived(duration_s)
                if session.full:
                    await self._held(session.room())
                session.send(message)
                # A client that is too fast gets no message: its socket fills up, and it waits.
                ahead_s = received_s - BURST_S - pace * (now_s - began_s)
                if ahead_s > 0:
                    await self._held(asyncio.sleep(ahead_s / pace))
                continue
            parsed = parse_message(message)
            match parsed:
                case Flush():
                    await self._held(session.room())
                    session.flush(parsed.id)
                case Keepalive():
                    pass
                case Stop():
                    session.end("stop")
                    return
                case Start():
                    raise ProtocolError(
                        ErrorCode.ALREADY_STARTED, "this session has started; open another socket"
                    )

    async def _held(self, waiting: Awaitable[None]) -> None:
        """Wait for room, or the pace; meanwhile the client is not read, and so not silent."""
        began_s, self._holds = self._loop.time(), True
        await waiting
        self._message_s, self._holds = self._loop.time(), False
        self._audio_s += self._message_s - began_s

    async def _watch(self, session: Relay, reader: asyncio.Task[None]) -> None:
        """Ends a session whose client is silent, which is too long, or when the service drains."""
        draining = self._service.draining
        while not reader.done():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(self._end()[0]):
                    await draining.wait()
            end_s, fault = self._end()
            if draining.is_set():
                session.end("draining")
            elif self._loop.time() >= end_s:
                session.end("error", fault)
            else:
                continue
            reader.cancel()
            return

    def _end(self) -> tuple[float, ProtocolError]:
        """When the session is over unless something comes, and why."""
        message_s, audio_s = self._message_s, self._audio_s
        if self._holds:
            message_s = audio_s = self._loop.time()
        idle, idle_s = ErrorCode.IDLE_TIMEOUT, self._settings.idle_timeout_s
        return min(
            (self._deadline_s, self._too_long("")),
            (message_s + idle_s, ProtocolError(idle, f"no message for {idle_s:g} s")),
            (audio_s + KEPT_ALIVE_S, ProtocolError(idle, f"no audio for {KEPT_ALIVE_S:g} s")),
            key=itemgetter(0),
        )

    def _too_long(self, what: str) -> ProtocolError:
        most_s = self._settings.max_session_s
        message = f"a session lasts at most {most_s:g} s {what}".strip()
        return ProtocolError(ErrorCode.SESSION_TOO_LONG, message)

    async def _send(self, text: str) -> None:
        """Raises ProtocolError if the client does not read, and VanishedError if it has gone."""
        try:
            async with asyncio.timeout(SEND_TIMEOUT_S):
                await self._websocket.send_text(text)
        except TimeoutError:
            message = f"the client has read nothing for {SEND_TIMEOUT_S:g} s"
            raise ProtocolError(ErrorCode.SLOW_READER, message) from None
        except (WebSocketDisconnect, RuntimeError):  # RuntimeError: uvicorn has closed it
            raise VanishedError from None


def content_of(message: MutableMapping[str, Any]) -> bytes | str:
    """What a client sent. Raises VanishedError if it has gone, and ProtocolError for too much."""
    if message["type"] == "websocket.disconnect":
        raise VanishedError
    content: bytes | str | None = message.get("bytes")
    if content is None:
        content = str(message["text"])
    size = len(content) if isinstance(content, bytes) else len(content.encode())
    if size > MAX_MESSAGE_BYTES:
        raise ProtocolError(
            ErrorCode.MESSAGE_TOO_BIG,
            f"a message of {size} bytes; at most {MAX_MESSAGE_BYTES} are taken",
        )
    return content
