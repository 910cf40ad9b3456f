"""The live endpoint: one socket, one session (PROTOCOL.md).

Four tasks share a connection: one reads the socket into a bounded inbox, one feeds the inbox to the
transcription session and its events to a bounded outbox, one writes the outbox to the socket, and
one reports progress. They end together: `End` is queued in the inbox behind all received audio, so
this audio is transcribed first, however the session ends.
"""

import asyncio
import base64
import contextlib
import logging
import secrets
from time import monotonic
from typing import NoReturn

from fastapi import APIRouter
from starlette.websockets import WebSocket, WebSocketDisconnect

from model.config import HOP
from service.access.clients import Place, client_of
from service.access.problems import chosen_subprotocol, record_refusal, refuse
from service.access.rate import Bucket
from service.live.inbox import End, Inbox
from service.live.outbox import Outbox
from service.live.progress import HeatLog, ProgressReporter
from service.live.receiver import DrainingError, Receiver, VanishedError
from service.live.session_log import SessionLog
from service.protocol.client_messages import (
    Checkpoint,
    Flush,
    Keepalive,
    Start,
    Stop,
    parse_message,
    parse_query,
)
from service.protocol.faults import CloseCode, ErrorCode, ProtocolError
from service.protocol.options import AudioFormat, StreamOptions
from service.protocol.server_messages import Done, Draining, Error, Flushed, Limits, Ready
from service.session.listening import chosen
from service.session.session import TranscriptionSession
from service.session.wire import resume_point
from service.state import ServiceState

logger = logging.getLogger(__name__)
router = APIRouter()

# How long a client may take to accept the close frame.
CLOSE_PATIENCE_S = 1.0

# What a session may send at once, of audio and of messages.
BURST_S = 10.0
BURST_MESSAGES = 50_000


@router.websocket("/ws/transcribe")
async def transcribe_live(websocket: WebSocket) -> None:
    """Admits a client, or refuses it with a reason."""
    state: ServiceState = websocket.app.state.service
    client = client_of(websocket.scope)
    with (
        state.sessions.take(state.sessions.first_size) as place,
        state.client_sessions.take(client, client.max_sessions) as client_placed,
    ):
        refusal = state.session_refusal(place is not None, client_placed)
        if refusal is not None:
            record_refusal(state.metrics.refused, refusal, client)
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
        self, websocket: WebSocket, state: ServiceState, place: Place | None, log: SessionLog
    ) -> None:
        self._websocket = websocket
        self._place = place
        self._log = log
        self._service = state
        self._settings = state.settings
        self._id = secrets.token_hex(8)
        self._receiver = Receiver(websocket, self._settings, state.draining)
        self._outbox = Outbox(
            websocket, self._settings.max_outbound_messages, self._settings.send_timeout_s
        )

    async def run(self) -> None:
        """Serves the client; the session has always ended when this returns."""
        try:
            start = await self._start()
            close_code, reason = await self._converse(start)
        except ProtocolError as error:
            # Before `ready` no notes are owed; a slow reader would not read them.
            logger.info("%s: %s", error.code, error.message)
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
        finally:
            self._receiver.close()
        self._log.closed(reason)
        with contextlib.suppress(WebSocketDisconnect, RuntimeError, TimeoutError):
            async with asyncio.timeout(CLOSE_PATIENCE_S):
                await self._websocket.close(close_code, reason)

    async def _send_error(self, error: ProtocolError) -> None:
        """Sends the last message to a client whose session did not end regularly."""
        with contextlib.suppress(VanishedError, TimeoutError):
            async with asyncio.timeout(CLOSE_PATIENCE_S):
                await self._outbox.send(Error.of(error))

    # -- the beginning ----------------------------------------------------------------------------

    async def _start(self) -> Start:
        start = parse_query(self._websocket.query_params.multi_items())
        if start is None:
            try:
                message = await self._receiver.receive()
            except DrainingError:
                raise ProtocolError(ErrorCode.DRAINING, "the server is shutting down") from None
            if isinstance(message, bytes):
                raise ProtocolError(ErrorCode.NOT_STARTED, "audio came before start")
            parsed = parse_message(message)
            if not isinstance(parsed, Start):
                raise ProtocolError(ErrorCode.NOT_STARTED, f"{parsed.type} came before start")
            start = parsed
        self._service.check_model(start.model)
        return start

    def _session(
        self, audio: AudioFormat, options: StreamOptions, start: Start, heat: HeatLog | None
    ) -> TranscriptionSession:
        """Raises ProtocolError if there is no room for these options, or they cannot be met."""
        sessions = self._service.sessions
        if self._place is not None and not self._place.resize(sessions.size(options)):
            raise sessions.refusal(options)
        point = resume_point(start.resume) if start.resume is not None else None
        session = TranscriptionSession(
            self._service.slot.loaded(),
            audio,
            options,
            max_notes=self._settings.max_notes,
            resume=point,
            on_frames=heat.add if heat else None,
        )
        if heat and point:  # later frames were not final when the earlier session ended
            heat.begin(max(0, point.frames - session.late_frames))
        return session

    def _ready(
        self, session: TranscriptionSession, options: StreamOptions, checkpoint: Checkpoint
    ) -> Ready:
        """The message that states the options in effect."""
        config, delay = session.config, session.delay
        described = chosen(options, config)
        return Ready(
            **described | {"instruments": described["instruments"] or None},
            session_id=self._id,
            sample_rate_hz=config.sample_rate,
            hop_samples=HOP,
            frame_rate_hz=config.sample_rate / HOP,
            delay_ms=round(delay.note_on_ms, 3),
            median_delay_ms=delay.note_on_median_ms,
            note_off_delay_ms=round(delay.note_off_ms, 3),
            replay_ms=round(session.replay_ms, 3),
            checkpoint=checkpoint,
            limits=Limits.model_validate(self._settings, from_attributes=True),
        )

    # -- the four tasks ---------------------------------------------------------------------------

    async def _converse(self, start: Start) -> tuple[int, str]:
        """Runs the session from `ready` to `done`; returns the close code and reason."""
        audio, options = start.audio(), start.options(self._service.sessions.default)
        heat = HeatLog() if start.frames else None
        session = self._session(audio, options, start, heat)
        if start.resume is not None:
            self._id = start.resume.session_id
        inbox = Inbox(audio, self._settings.max_buffered_ms, self._settings.max_inbound_messages)
        reporter = ProgressReporter(
            session=session,
            session_id=self._id,
            inbox=inbox,
            outbox=self._outbox,
            settings=self._settings,
            metrics=self._service.metrics,
            known_events=start.resume.known_events if start.resume else 0,
            updates=start.updates,
            heat=heat,
        )
        asked = start.model_dump(mode="json", exclude={"type", "resume"}, exclude_none=True)
        self._log.opened(self._id, session.totals, resumed=start.resume is not None, **asked)
        try:
            async with asyncio.TaskGroup() as group:
                writer = group.create_task(self._outbox.write())
                await self._outbox.put(self._ready(session, options, reporter.checkpoint))
                reader = group.create_task(self._read(inbox, audio))
                reporting = group.create_task(reporter.report())
                end = await self._transcribe(session, inbox, reporter)
                reader.cancel()
                reporting.cancel()
                await asyncio.wait([reader, reporting])
                end = await self._finish(session, reporter, end)
                await self._outbox.finish(writer)
        except BaseExceptionGroup as group_error:
            raise_first(group_error)
        finally:
            # No effect after a regular end. A session that was cut off releases its windows.
            session.abort()
            self._log.ended(session.totals)
        if end.error is not None:
            return end.error.code.close_code, end.error.code
        return (CloseCode.GOING_AWAY if end.reason == "draining" else CloseCode.NORMAL), end.reason

    async def _read(self, inbox: Inbox, audio: AudioFormat) -> None:
        """Moves the client's messages into the inbox, up to and including `End`."""
        try:
            end = await self._read_to_end(inbox, audio)
        except DrainingError:
            end = End("draining")
        except ProtocolError as error:
            end = End("error", error)
        await inbox.put(end)

    async def _read_to_end(self, inbox: Inbox, audio: AudioFormat) -> End:
        received_bytes = 0
        # A client that is too fast gets no message: its socket fills up, and it waits.
        pace = Bucket(self._settings.max_pace, BURST_S)
        # For Ray Serve: uvicorn's own connections count frames (`service.ops.connections`).
        messages = Bucket(self._settings.max_messages_per_s, BURST_MESSAGES)
        most_ms = 1000.0 * self._settings.max_session_s
        audio_s = self._service.metrics.audio_s.labels("live")
        while True:
            message = await self._receiver.receive()
            await self._receiver.pause(messages.take(1, monotonic()))
            if isinstance(message, bytes):
                received_bytes += len(message)
                if audio.duration_ms(received_bytes) > most_ms:
                    raise ProtocolError(
                        ErrorCode.SESSION_TOO_LONG,
                        f"a session takes at most {self._settings.max_session_s:g} s of audio",
                    )
                duration_s = audio.duration_ms(len(message)) / 1000
                audio_s.inc(duration_s)
                await inbox.put(message)
                await self._receiver.pause(pace.take(duration_s, monotonic()))
                continue
            parsed = parse_message(message)
            match parsed:
                case Flush():
                    await inbox.put(parsed)
                case Keepalive():
                    pass
                case Stop():
                    return End("stop")
                case Start():
                    raise ProtocolError(
                        ErrorCode.ALREADY_STARTED, "this session has started; open another socket"
                    )

    async def _transcribe(
        self, session: TranscriptionSession, inbox: Inbox, reporter: ProgressReporter
    ) -> End:
        """Feeds the inbox to the session, up to its end or the first fault."""
        while True:
            message = await inbox.get()
            if isinstance(message, End):
                return message
            if isinstance(message, Flush):
                await self._outbox.put(Flushed(id=message.id, frame=session.frames))
                continue
            try:
                events = await session.push(message)
            except ProtocolError as error:
                return End("error", error)
            except Exception:
                # The fault is confined to this session, whose notes are still ended.
                logger.exception("transcription failed")
                return End("error", internal_error())
            await reporter.events(events)

    # -- the end ----------------------------------------------------------------------------------

    async def _finish(
        self, session: TranscriptionSession, reporter: ProgressReporter, end: End
    ) -> End:
        """Sends the reason (unless it is `stop`), the last notes and `done`; returns the end."""
        if end.error is not None:
            await self._outbox.put(Error.of(end.error))
        elif end.reason == "draining":
            await self._outbox.put(Draining())
        try:
            events = await session.finish()
            # Without `stop`, an incomplete last sample is not the client's fault.
            fault = session.incomplete if end.reason == "stop" else None
        except Exception:
            logger.exception("transcription failed at the end")
            events = session.abort()
            fault = internal_error()
        if fault is not None and end.error is None:
            end = End("error", fault)
            await self._outbox.put(Error.of(fault))
        await reporter.events(events, last=True)
        midi = await asyncio.to_thread(session.score.midi)
        await self._outbox.put(
            Done(
                reason=end.reason,
                totals=session.totals,
                midi_base64=base64.b64encode(midi).decode(),
            )
        )
        return end


def internal_error() -> ProtocolError:
    """The error that a client sees for a server fault; the log has the details."""
    return ProtocolError(ErrorCode.INTERNAL, "the server failed; this was logged")


def raise_first(group: BaseExceptionGroup[Exception]) -> NoReturn:
    """Raises the first plain exception of a group: the tasks of a connection fail together."""
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    raise error from None
