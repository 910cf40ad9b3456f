"""Decodes untrusted audio files in child processes with limits.

FFmpeg trusts the tables of a file: an MP4 of 641 bytes can make it allocate gigabytes. A child may
use MAX_MEMORY_BYTES more memory than at its start, and MAX_CPU_S of CPU time. It has no network
access where the system allows this limit. A child that exceeds a limit stops, and the service
reports that the file needs too much memory or time.

A server process (``python -m service.audio.sandbox``) imports FFmpeg once. It forks a child for
each file, which takes milliseconds. For each file it receives two descriptors: the file, and a pipe
for the child's packets. A packet consists of one byte for its kind, four bytes for its length, and
JSON or mono float32 samples. The first packet contains the child's process ID. While the child
reads a large float file to find its peak, empty packets show that it has not stalled.
"""

import atexit
import contextlib
import ctypes
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any, BinaryIO, Self

import numpy as np
from numpy.typing import NDArray

from service.audio.decode import AudioDecoder
from service.protocol.errors import ErrorCode, ProtocolError
from service.protocol.options import AudioFormat, Encoding, Mix

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

MAX_MEMORY_BYTES = 256 << 20
MAX_CPU_S = 600
DECODER_NICE = 10  # niceness of a child, so that live streams have a higher priority
STALL_S = 10.0  # maximum time without data from a child
PROGRESS_S = 1.0  # minimum interval of packets that only report progress
MAX_PACKET_BYTES = 16 << 20
HAS_LIMITS = sys.platform == "linux"
MAX_REQUEST_BYTES = 64
_HEADER = struct.Struct("<cI")
_INFO, _SAMPLES, _PROGRESS = b"i", b"s", b"p"
_CLONE_NEWUSER, _CLONE_NEWNET = 0x10000000, 0x40000000
Packet = dict[str, Any] | NDArray[np.float32]
TOO_COSTLY = "the file needs too much memory or time to be decoded"


class _Server:
    """Process that forks the children. It starts on first use, and restarts if it has exited."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def decode(self, file: BinaryIO, max_duration_s: float | None) -> int:
        """Start a child for a file. Return the descriptor of the pipe with the child's packets."""
        packets, write_end = os.pipe()
        request, files = json.dumps(max_duration_s).encode(), [file.fileno(), write_end]
        try:
            with self._lock:
                try:
                    socket.send_fds(self._socket or self._start(), [request], files)
                except OSError:  # the process has exited
                    self._stop()
                    socket.send_fds(self._start(), [request], files)
        except BaseException:
            os.close(packets)
            raise
        finally:
            os.close(write_end)
        return packets

    def _start(self) -> socket.socket:
        self._socket, server_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        paths = os.pathsep.join(filter(None, sys.path))
        with server_end:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "service.audio.sandbox"],
                stdin=server_end.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C in a terminal reaches only the service
                env={**os.environ, "PYTHONPATH": paths, "OPENBLAS_NUM_THREADS": "1"},
            )
        return self._socket

    def stop(self) -> None:
        """End the process. The next file starts a new process."""
        with self._lock:
            self._stop()

    def _stop(self) -> None:
        if self._socket is not None:
            self._socket.close()
        if self._process is not None:
            self._process.wait()
        self._socket = self._process = None


_server = _Server()
stop_server = _server.stop
atexit.register(stop_server)


class SandboxedDecoder:
    """An ``AudioDecoder`` in a child process. ``pid`` is the ID of the child process."""

    def __init__(self, file: BinaryIO, max_duration_s: float | None = None) -> None:
        """Start a child that decodes ``file``, which must have a file descriptor and stay open.
        Raises ProtocolError."""
        file.seek(0)
        self._packets, self.pid = _server.decode(file, max_duration_s), 0
        self._poll = select.poll()  # unlike `select.select`, not limited to descriptors below 1024
        self._poll.register(self._packets, select.POLLIN)
        self.mix = Mix.MEAN
        try:
            self.pid = self._info()["pid"]
            info = self._info()
            self.header_duration_s: float | None = info["header_duration_s"]
            self.title = str(info["title"])
            self.audio = AudioFormat(
                encoding=Encoding.PCM_F32LE, sample_rate_hz=info["rate_hz"], channels=1
            )
            self._rest = self._blocks(self._next())
        except BaseException:
            self.close()
            raise

    def _info(self) -> dict[str, Any]:
        info = self._next()
        if not isinstance(info, dict):
            raise ProtocolError(ErrorCode.UNDECODABLE, TOO_COSTLY)
        return info

    def _blocks(self, packet: Packet) -> Iterator[NDArray[np.float32]]:
        while not isinstance(packet, dict):
            yield packet
            packet = self._next()
        self.mix = Mix(packet["mix"])

    def _next(self) -> Packet:
        """Return the next packet. Raises ProtocolError if the child reports an error or has
        exceeded a limit."""
        kind = _PROGRESS
        while kind == _PROGRESS:
            kind, length = _HEADER.unpack(self._read(_HEADER.size))
        if length > MAX_PACKET_BYTES:
            raise ProtocolError(ErrorCode.UNDECODABLE, TOO_COSTLY)
        data = self._read(length)
        if kind == _SAMPLES:
            return np.frombuffer(data, np.float32)
        info: dict[str, Any] = json.loads(data)
        if "code" in info:
            self.mix = Mix(info["mix"])
            raise ProtocolError(ErrorCode[info["code"]], info["message"])
        return info

    def _read(self, length: int) -> bytes:
        data = bytearray()
        while len(data) < length:
            has_data = self._poll.poll(1000 * STALL_S)
            chunk = os.read(self._packets, length - len(data)) if has_data else b""
            if not chunk:
                raise ProtocolError(ErrorCode.UNDECODABLE, TOO_COSTLY)
            data += chunk
        return bytes(data)

    def __iter__(self) -> Iterator[NDArray[np.float32]]:
        return self._rest

    def close(self) -> None:
        """End the child. Idempotent."""
        if self._packets < 0:
            return
        # A child holds its end of the pipe until it exits. Then another process may get its ID.
        has_exited = any(event & select.POLLHUP for _, event in self._poll.poll(0))
        if self.pid > 0 and not has_exited:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
        os.close(self._packets)
        self._packets = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _limit_process() -> None:
    """Limit the memory, CPU time and priority of this process. Remove its network access if the
    system allows it."""
    with open("/proc/self/statm", "rb") as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MAX_MEMORY_BYTES,) * 2)
    resource.setrlimit(resource.RLIMIT_CPU, (MAX_CPU_S,) * 2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.nice(max(0, DECODER_NICE - os.nice(0)))
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).unshare(_CLONE_NEWUSER | _CLONE_NEWNET)


def _decode(file_descriptor: int, packets: int, max_duration_s: float | None) -> None:
    out = os.fdopen(packets, "wb")

    def send(kind: bytes, data: bytes) -> None:
        out.write(_HEADER.pack(kind, len(data)) + data)
        out.flush()

    def send_info(**info: Any) -> None:
        send(_INFO, json.dumps(info).encode())

    reported_s = time.monotonic()

    def report_progress() -> None:
        nonlocal reported_s
        if time.monotonic() >= reported_s + PROGRESS_S:
            reported_s = time.monotonic()
            send(_PROGRESS, b"")

    send_info(pid=os.getpid())
    _limit_process()
    mix = Mix.MEAN
    try:
        with (
            os.fdopen(file_descriptor, "rb") as file,
            AudioDecoder(file, max_duration_s, report_progress) as decoder,
        ):
            send_info(
                rate_hz=decoder.audio.sample_rate_hz,
                header_duration_s=decoder.header_duration_s,
                title=decoder.title,
            )
            try:
                for block in decoder:
                    send(_SAMPLES, np.ascontiguousarray(block, np.float32).tobytes())
            finally:
                mix = decoder.mix
        send_info(mix=mix)
    except ProtocolError as error:
        send_info(code=error.code.name, message=error.message, mix=mix)
    except MemoryError:
        send_info(code=ErrorCode.UNDECODABLE.name, message=TOO_COSTLY, mix=mix)


def main() -> None:
    """Fork a child for each request, until the service closes the socket."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps the children
    requests = socket.socket(fileno=0)
    while True:
        request, descriptors, _, _ = socket.recv_fds(requests, MAX_REQUEST_BYTES, 2)
        if not request:
            return
        if os.fork() == 0:
            requests.close()
            try:
                file_descriptor, packets = descriptors
                _decode(file_descriptor, packets, json.loads(request))
            finally:
                os._exit(0)
        for descriptor in descriptors:
            os.close(descriptor)


if __name__ == "__main__":
    main()
