"""Tests of the service as a process, with real sockets and signals."""

import asyncio
import contextlib
import json
import os
import shutil
import signal
import socket
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus

from model.storage import WEIGHTS
from service.access.keys import hash_key
from service.live.websocket import MIN_READ_BYTES_PER_S
from service.server import MAX_PIPELINED, MAX_READ_AHEAD_BYTES
from tests.benchmarks.machine import process_tree
from tests.service.apps import (
    PITCHES,
    RATE_HZ,
    SAMPLES,
    check_notes,
    melody,
    midi_pitches,
    of_type,
    pcm16,
)
from tests.service.servers import TONES, RunningServer, StartServer, wait_until
from tests.service.talk import AUDIO, HANDSHAKE, ServerSession, check_transcription, connect_to


async def test_oversized_message_closes_the_connection(server: RunningServer) -> None:
    async with connect_to(server) as socket:
        session = ServerSession(socket)
        await session.start()
        with contextlib.suppress(ConnectionClosed):  # the server may close before all is sent
            await socket.send(bytes(5_000_000))
        assert await session.receive_rest() == 1009
    await wait_until(lambda: server.sessions() == 0)
    await check_transcription(server)
    assert "Traceback" not in server.log


async def test_client_that_does_not_read_is_disconnected(server: RunningServer) -> None:
    small = socket.socket()
    small.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)  # the server soon fills it
    small.connect(("127.0.0.1", server.port))
    async with connect_to(server, max_queue=1, ping_interval=None, sock=small) as connection:
        await ServerSession(connection).start()

        async def flood() -> None:
            question = json.dumps({"type": "flush", "id": "x" * 128})
            while True:
                await connection.send(question)

        # The client reads nothing, so the responses fill all buffers. Only the server can end the
        # session, because the client stays connected.
        flooding = asyncio.create_task(flood())
        await wait_until(lambda: server.sessions() == 0, timeout_s=240)
        # The server also closes the connection, although its last messages were never read.
        async with asyncio.timeout(60):
            with pytest.raises(ConnectionClosed):
                await flooding
        connection.transport.abort()
    await check_transcription(server)
    assert "Traceback" not in server.log


async def test_audio_queued_before_a_ping_is_read_in_time(server: RunningServer) -> None:
    async with connect_to(server, "?encoding=pcm_s16le&sample_rate=8000") as socket:
        sent, start_s, message = 0, time.monotonic(), bytes(2 * MIN_READ_BYTES_PER_S)
        with contextlib.suppress(TimeoutError):
            while True:
                async with asyncio.timeout(1):  # at the minimum pace this takes 2 s
                    await socket.send(message)
                sent += len(message)
        # Most clients wait 20 s for a pong. The server reads the audio before the ping first.
        read = MAX_READ_AHEAD_BYTES + len(message)
        read += round((time.monotonic() - start_s) * MIN_READ_BYTES_PER_S)
        assert sent - read <= 20 * MIN_READ_BYTES_PER_S
        socket.transport.abort()


async def test_close_is_prompt_although_messages_wait(server: RunningServer) -> None:
    """The server reads the client's close frame behind messages that it no longer processes."""
    async with connect_to(server, ping_interval=None, close_timeout=60) as socket:
        session = ServerSession(socket)
        await session.start()
        await socket.send('{"type": "stop"}')

        async def flood() -> None:
            with contextlib.suppress(ConnectionClosed):
                while True:
                    await socket.send(bytes(1 << 16))

        flooding = asyncio.create_task(flood())
        await session.until("done")
        start_s = time.monotonic()
        assert await session.receive_rest() == 1000
        await flooding
    assert time.monotonic() - start_s < 8  # uvicorn waits 10 s for a close frame


async def test_ping_flood_does_not_block_other_clients(server: RunningServer) -> None:
    pings = b"\x89\x80\0\0\0\0" * 10_000
    answered = asyncio.Semaphore(0)

    async def discard(reader: asyncio.StreamReader) -> None:
        while await reader.read(1 << 16):
            answered.release()

    async def flood() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(HANDSHAKE)
        await reader.readuntil(b"\r\n\r\n")
        discarding = asyncio.create_task(discard(reader))
        try:
            while True:
                writer.write(pings)
                await writer.drain()
        finally:
            writer.transport.abort()
            await discarding

    floods = [asyncio.create_task(flood()) for _ in range(3)]
    try:
        for _ in range(10):
            await answered.acquire()
        async with asyncio.timeout(240):
            await check_transcription(server)
    finally:
        for task in floods:
            task.cancel()
        await asyncio.gather(*floods, return_exceptions=True)


async def test_sigterm_ends_sessions_with_their_notes(start_server: StartServer) -> None:
    server = start_server(*TONES)
    audio = pcm16(melody()[: round(1.5 * RATE_HZ)])  # the last note still sounds

    async def play(ready_to_go: asyncio.Barrier) -> tuple[list[dict[str, Any]], int | None]:
        async with connect_to(server) as socket:
            session = ServerSession(socket)
            await session.start()
            await session.play(audio)
            await session.flush()
            await ready_to_go.wait()
            return session.messages, await session.receive_rest()

    barrier = asyncio.Barrier(4)
    clients = [asyncio.create_task(play(barrier)) for _ in range(3)]
    await barrier.wait()
    exit_code = await asyncio.to_thread(server.terminate)
    for messages, code in await asyncio.gather(*clients):
        assert check_notes(messages) == PITCHES
        assert (messages[-1]["type"], messages[-1]["reason"]) == ("done", "draining")
        assert midi_pitches(messages[-1]["midi_base64"]) == PITCHES
        assert not of_type(messages, "error")
        assert code == 1001
    assert exit_code == 0
    assert "Traceback" not in server.log


async def test_client_that_still_plays_at_the_shutdown_is_not_cut_off(
    start_server: StartServer,
) -> None:
    """The server waits for the client's close frame, because unread messages would be lost."""
    server = start_server(*TONES)
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(HANDSHAKE.replace(b" HTTP", b"?encoding=pcm_s16le&sample_rate=16000 HTTP", 1))
    await reader.readuntil(b'"ready"')
    server.process.send_signal(signal.SIGTERM)
    await reader.readuntil(b'"done"')
    for _ in range(40):
        writer.write(b"\x82\x82\0\0\0\0\0\0")  # a frame of two bytes of audio
        await asyncio.sleep(0.01)
    await writer.drain()
    assert reader.exception() is None  # the connection was not reset
    writer.close()
    assert await asyncio.to_thread(server.terminate) == 0


async def test_signal_after_the_drain_logs_no_traceback(start_server: StartServer) -> None:
    server = start_server(*TONES)
    async with connect_to(server) as socket:
        await ServerSession(socket).start()
        server.process.send_signal(signal.SIGTERM)
        await wait_until(lambda: "draining ended" in server.log, lambda: server.log)
        assert await asyncio.to_thread(server.terminate) == 0
    assert "Traceback" not in server.log


HEAD = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n"


@pytest.mark.parametrize(
    "endless",
    [
        HEAD + 100_000 * b"a: b\r\n",
        HEAD + b"a: " + 600_000 * b"a",
        b"GET /" + 600_000 * b"a",
        b"POST" + HEAD[3:] + b"Transfer-Encoding: chunked\r\n\r\n0\r\n" + 100_000 * b"a: b\r\n",
        2_000 * (HEAD + b"\r\n"),
        HEAD + b"\r\n\0",
    ],
    ids=["headers", "header", "url", "trailers", "pipeline", "garbage"],
)
def test_endless_request_is_disconnected(server: RunningServer, endless: bytes) -> None:
    """The log has no traceback, although a response may be in progress."""
    received = b""
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as client:
        with contextlib.suppress(ConnectionError):  # the server closes before all is sent
            client.sendall(endless)
            while data := client.recv(1 << 16):
                received += data
    assert received.count(b"HTTP/1.1 200") <= MAX_PIPELINED + 1
    assert httpx.get(f"{server.url}/healthz", timeout=60).is_success
    assert "Traceback" not in server.log


async def test_slow_requests_time_out_but_sessions_do_not(start_server: StartServer) -> None:
    """The timeout applies to the head of a request, and to a body after the response."""
    server = start_server(*TONES, RSE_IDLE_TIMEOUT_S="3")

    async def send_slowly(head: bytes, trickle: bytes) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(head)
        while not writer.transport.is_closing() and not reader.at_eof():
            writer.write(trickle)
            await asyncio.sleep(0.05)
        writer.transport.abort()

    body = b"Content-Length: 1000000\r\n\r\n"
    requests = ((HEAD[:-1], b""), (HEAD, b"a"), (HEAD + body, b"a"))
    async with connect_to(server, "?encoding=pcm_s16le&sample_rate=16000") as session:
        ending = asyncio.gather(*(send_slowly(*request) for request in requests))
        async with asyncio.timeout(60):
            while not ending.done():
                await session.send(bytes(3200))
                await asyncio.sleep(0.1)
        await ending
        await session.send('{"type": "stop"}')
        assert '"done"' in [text async for text in session][-1]


async def test_invalid_utf8_closes_the_connection(server: RunningServer) -> None:
    async with connect_to(server) as socket:
        await socket.send(b"\xff", text=True)
        assert await ServerSession(socket).receive_rest() == 1007
    assert "Traceback" not in server.log


async def test_sighup_reloads_keys_and_logs_no_secret(
    start_server: StartServer, tmp_path: Path
) -> None:
    old_key, key, keys_file = "rse_no-more", "rse_in-a-url", tmp_path / "keys"
    keys_file.write_text(f"alice:{hash_key(old_key).hex()}\nbob:{hash_key('bob').hex()}\n")
    server = start_server(*TONES, RSE_KEYS_FILE=str(keys_file), RSE_LOG_FORMAT="json")
    headers = {"Authorization": f"Bearer {key}"}
    options = "?encoding=pcm_s16le&sample_rate=16000"
    alice_header = {"Authorization": f"Bearer {old_key}"}
    bob_header = {"Authorization": "Bearer bob"}
    async with (
        connect_to(server, options, additional_headers=alice_header) as kept_session,
        connect_to(server, options, additional_headers=bob_header) as removed,
    ):
        assert "ready" in await kept_session.recv()
        assert "ready" in await removed.recv()
        keys_file.write_text(f"alice:{hash_key(key).hex()}\n")
        server.process.send_signal(signal.SIGHUP)
        await wait_until(lambda: "API keys reloaded" in server.log)
        async with httpx.AsyncClient(timeout=60) as client:
            for header, status in ((alice_header, 401), (headers, 200)):
                response = await client.get(f"{server.url}/info", headers=header)
                assert response.status_code == status
        with pytest.raises(InvalidStatus):
            await connect_to(server, f"?token={key}")
        async with connect_to(server, f"?token={key}", additional_headers=headers) as socket:
            assert "bad_start" in await socket.recv()
        assert await ServerSession(removed).receive_rest() == 4401
        await asyncio.to_thread(server.terminate)
        assert '"done"' in [text async for text in kept_session][-1]  # the reload did not end it
    lines = [json.loads(line) for line in server.log.splitlines()]
    assert key not in server.log
    assert not [line for line in lines if line["level"] == "error"]
    assert {line["message"] for line in lines if line.get("code") == "unauthorized"} == {
        "rejected: no valid API key or token"
    }


# -- `python -m service` --------------------------------------------------------------------------


async def test_command_serves_the_shipped_weights(start_server: StartServer) -> None:
    server = start_server(
        *("service", "--port", "{port}", "--device", "cpu", "--model", "light"), OMP_NUM_THREADS="2"
    )
    assert server.url in server.log
    workers = process_tree(server.process.pid)[1:]
    assert len(workers) == 2  # one per core
    async with httpx.AsyncClient(timeout=60) as client:
        info = (await client.get(f"{server.url}/info")).json()
    assert (info["model"], info["device"], info["ready"]) == ("light", "cpu", True)
    assert str(WEIGHTS) not in json.dumps(info)
    async with connect_to(server, ping_interval=None) as socket:
        session = ServerSession(socket)
        await session.start()
        assert session.messages[0]["model"] == "light"
        await session.play(AUDIO)
        await session.flush()
        # Pings are answered while the workers cannot run.
        for worker in workers:
            os.kill(worker, signal.SIGSTOP)
        await session.play(bytes(2 * RATE_HZ * 15))
        async with asyncio.timeout(60):
            await (await socket.ping())
        for worker in workers:
            os.kill(worker, signal.SIGCONT)
        await socket.send('{"type": "stop"}')
        assert await session.receive_rest() == 1000
    check_notes(session.messages)
    totals = session.messages[-1]["totals"]
    assert totals["received_samples"] == SAMPLES + 15 * RATE_HZ
    assert totals["frames"] == -(-round(16.6 * 11_025) // 128)
    os.kill(server.process.pid, signal.SIGINT)  # Ctrl+C
    assert server.process.wait(240) == 0
    assert "Traceback" not in server.log


def test_port_in_use_is_reported(start_server: StartServer) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        server = start_server("service", "--port", port, "--model", "light", wait=False)
        assert server.process.wait(240) > 0  # not aborted by a signal
    assert "address already in use" in server.log
    assert "terminate called" not in server.log


def test_corrupt_weights_end_the_command(start_server: StartServer, tmp_path: Path) -> None:
    weights = tmp_path / "mine.safetensors"
    weights.write_bytes((WEIGHTS / "light.safetensors").read_bytes()[:-100])
    shutil.copy(WEIGHTS / "light.json", weights.with_suffix(".json"))
    server = start_server("service", "--port", "{port}", "--model", str(weights), wait=False)
    assert server.process.wait(240) == 1
    assert "cannot load the model" in server.log
