"""Decodes untrusted audio files in child processes with limits.

FFmpeg trusts the tables of a file: an MP4 of 641 bytes can make it allocate gigabytes. A child may
use MAX_MEMORY_BYTES more memory than at its start, and MAX_CPU_S of CPU time. It has no network
access where the system allows this limit. A child that exceeds a limit stops, and the service
reports that the file needs too much memory or time.

Each file has its own child (``python -m service.audio.sandbox``). The file is the child's standard
input. Its standard output has messages: an empty message after its start, the format of the audio
as JSON, blocks of mono float32 samples, an empty message, and the mix as JSON. An error replaces
the format or the mix. While the child reads a large float file to find its peak, empty messages
show that it has not stalled.
"""

import contextlib
import ctypes
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from multiprocessing import Pipe
from multiprocessing.connection import Connection
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
# Maximum time until a child's first message. Its imports need 0.4 s of CPU time, but 20 children
# that start together on a busy machine need more than 30 s.
START_S = 300.0
STALL_S = 30.0  # maximum time without a message after the start
PROGRESS_S = 1.0  # minimum interval of messages that only report progress
MAX_MESSAGE_BYTES = 16 << 20
HAS_LIMITS = sys.platform == "linux"
_CLONE_NEWUSER, _CLONE_NEWNET = 0x10000000, 0x40000000
TOO_COSTLY = "the file needs too much memory or time to be decoded"
_children: set[subprocess.Popen[bytes]] = set()


class SandboxedDecoder:
    """An ``AudioDecoder`` in a child process. ``pid`` is the ID of the child process."""

    def __init__(self, file: BinaryIO, max_duration_s: float | None = None) -> None:
        """Start a child that decodes ``file``, which must have a file descriptor and stay open.
        Raises ProtocolError."""
        file.seek(0)
        self._messages, output = Pipe(duplex=False)
        paths = os.pathsep.join(filter(None, sys.path))
        # Without the settings, which include secrets: a crafted file may take over the child.
        environment = {k: v for k, v in os.environ.items() if not k.startswith("RSE_")}
        with output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "service.audio.sandbox", json.dumps(max_duration_s)],
                stdin=file,
                stdout=output.fileno(),
                env={**environment, "PYTHONPATH": paths, "OPENBLAS_NUM_THREADS": "1"},
                process_group=0,  # the terminal's Ctrl-C must not end it while the service drains
            )
        _children.add(self._process)
        self.pid, self.mix = self._process.pid, Mix.MEAN
        try:
            nice = max(DECODER_NICE, os.getpriority(os.PRIO_PROCESS, 0))
            os.setpriority(os.PRIO_PROCESS, self.pid, nice)
            self._receive(START_S)
            info = self._receive_info()
            self.header_duration_s: float | None = info["header_duration_s"]
            self.title = str(info["title"])
            self.audio = AudioFormat(
                encoding=Encoding.PCM_F32LE, sample_rate_hz=info["rate_hz"], channels=1
            )
        except BaseException:
            self.close()
            raise

    def __iter__(self) -> Iterator[NDArray[np.float32]]:
        while samples := self._receive():
            yield np.frombuffer(samples, np.float32)
        self._receive_info()

    def _receive_info(self) -> dict[str, Any]:
        """Return the next JSON object, after any progress. Raises ProtocolError."""
        while not (message := self._receive()):
            pass
        info: dict[str, Any] = json.loads(message)
        self.mix = Mix(info.get("mix", self.mix))
        if "code" in info:
            raise ProtocolError(ErrorCode[info["code"]], info["message"])
        return info

    def _receive(self, timeout_s: float | None = None) -> bytes:
        """Return the next message, after at most STALL_S by default. Raises ProtocolError if the
        child has exceeded a limit."""
        with contextlib.suppress(EOFError, OSError):  # the child has exited; a message is too long
            if self._messages.poll(STALL_S if timeout_s is None else timeout_s):
                return self._messages.recv_bytes(MAX_MESSAGE_BYTES)
        raise ProtocolError(ErrorCode.UNDECODABLE, TOO_COSTLY)

    def close(self) -> None:
        """End the child. Idempotent."""
        self._process.kill()
        self._process.wait()
        self._messages.close()
        _children.discard(self._process)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def kill_children() -> None:
    """End all children. Threads that wait for their messages then raise ProtocolError."""
    for process in list(_children):
        process.kill()


def _limit_process() -> None:
    """Limit the memory and CPU time of this process. Remove its network access if the system allows
    it."""
    with open("/proc/self/statm", "rb") as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MAX_MEMORY_BYTES,) * 2)
    resource.setrlimit(resource.RLIMIT_CPU, (MAX_CPU_S,) * 2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).unshare(_CLONE_NEWUSER | _CLONE_NEWNET)


def main() -> None:
    """Decode the standard input. The argument is the maximum duration in s, or null."""
    messages = Connection(sys.stdout.fileno(), readable=False)
    reported_s = time.monotonic()

    def report_progress() -> None:
        nonlocal reported_s
        if time.monotonic() >= reported_s + PROGRESS_S:
            reported_s = time.monotonic()
            messages.send_bytes(b"")

    def send_info(**info: Any) -> None:
        messages.send_bytes(json.dumps(info).encode())

    _limit_process()
    messages.send_bytes(b"")
    max_duration_s, mix = json.loads(sys.argv[1]), Mix.MEAN
    error: dict[str, str] = {}
    try:
        with AudioDecoder(sys.stdin.buffer, max_duration_s, report_progress) as decoder:
            send_info(
                rate_hz=decoder.audio.sample_rate_hz,
                header_duration_s=decoder.header_duration_s,
                title=decoder.title,
            )
            try:
                for block in decoder:
                    messages.send_bytes(block.astype(np.float32, copy=False).tobytes())
            finally:
                mix = decoder.mix
    except ProtocolError as failure:
        error = {"code": failure.code.name, "message": failure.message}
    except MemoryError:
        error = {"code": ErrorCode.UNDECODABLE.name, "message": TOO_COSTLY}
    messages.send_bytes(b"")
    send_info(mix=mix, **error)


if __name__ == "__main__":
    main()
