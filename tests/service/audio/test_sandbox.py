"""Tests of the decoder of untrusted files in a child process."""

import contextlib
import os
import re
import resource
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import soundfile

from service.audio import sandbox
from service.audio.decode import AudioDecoder
from service.audio.sandbox import SandboxedDecoder
from service.protocol.errors import ProtocolError
from tests.paths import REPOSITORY
from tests.service.audio.encode import encode_file


def write_stereo(path: Path, samples: int = 30_000) -> Path:
    rng = np.random.default_rng(0)
    with soundfile.SoundFile(path, "w", 44_100, 2) as sound:
        sound.title = "Ωμέγα"
        sound.write(rng.uniform(-0.5, 0.5, (samples, 2)))
    return path


def test_child_does_not_know_the_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RSE_SECRET", "geheim")
    with write_stereo(tmp_path / "a.wav").open("rb") as file, SandboxedDecoder(file) as decoder:
        assert b"geheim" not in Path(f"/proc/{decoder.pid}/environ").read_bytes()


def wait_for_exit(pid: int) -> None:
    deadline_s = time.monotonic() + 60
    while Path(f"/proc/{pid}").exists() and time.monotonic() < deadline_s:
        time.sleep(0.01)
    assert not Path(f"/proc/{pid}").exists()


def write_m4a(path: Path, claimed_samples: int) -> Path:
    """Write a short M4A whose tables claim ``claimed_samples`` samples."""
    data = bytearray(encode_file(np.zeros((1024, 1), np.float32), "mp4", "aac", 44_100))
    for box, offset, values in (
        (b"stsz", 8, (1, claimed_samples)),
        (b"stts", 8, (1, claimed_samples, 1024)),
        (b"stsc", 8, (1, 1, claimed_samples, 1)),
    ):
        at = data.index(box) + offset
        struct.pack_into(f">{len(values)}I", data, at, *values)
    path.write_bytes(data)
    return path


def test_sandbox_returns_the_same_samples(tmp_path: Path) -> None:
    with write_stereo(tmp_path / "a.flac").open("rb") as file:
        with AudioDecoder(file) as decoder:
            expected = np.concatenate(list(decoder))
        with SandboxedDecoder(file) as sandboxed:
            assert sandboxed.audio == decoder.audio
            assert sandboxed.header_duration_s == decoder.header_duration_s
            assert sandboxed.title == decoder.title == "Ωμέγα"
            np.testing.assert_array_equal(np.concatenate(list(sandboxed)), expected)
            assert sandboxed.mix == decoder.mix


MEASURE = """
import sys

from service.audio.decode import AudioDecoder
from service.protocol.errors import ProtocolError


def peak_kb():
    # Peak memory of this program. ru_maxrss would include the process that started it.
    status = open("/proc/self/status").read()
    return int(status.partition("VmHWM:")[2].split()[0])


before_kb = peak_kb()
try:
    with open(sys.argv[1], "rb") as file, AudioDecoder(file) as decoder:
        list(decoder)
except ProtocolError as error:
    print(error.code.status, peak_kb() - before_kb)
"""


def test_crafted_file_allocates_little_memory(tmp_path: Path) -> None:
    path = write_m4a(tmp_path / "bomb.m4a", claimed_samples=80_000_000)
    with path.open("rb") as file, pytest.raises(ProtocolError) as error:
        with SandboxedDecoder(file) as decoder:
            list(decoder)
    assert error.value.code.status == 422
    output = subprocess.check_output([sys.executable, "-c", MEASURE, path], cwd=REPOSITORY)
    status, allocated_kb = map(int, output.split())
    assert status == 422
    assert allocated_kb < 100 * 1024


def test_child_has_limits_and_no_network(tmp_path: Path) -> None:
    with write_stereo(tmp_path / "a.wav").open("rb") as file, SandboxedDecoder(file) as decoder:
        limits, status = (
            Path(f"/proc/{decoder.pid}/{name}").read_text() for name in ("limits", "status")
        )
        niceness = os.getpriority(os.PRIO_PROCESS, decoder.pid)
        networks = [os.readlink(f"/proc/{pid}/ns/net") for pid in (decoder.pid, os.getpid())]
    maximum = dict(re.findall(r"^Max (.+?)  +(\w+)", limits, re.M))
    used_kb = int(status.partition("VmSize:")[2].split()[0])
    assert int(maximum["address space"]) <= 1024 * used_kb + sandbox.MAX_MEMORY_BYTES
    assert int(maximum["cpu time"]) == sandbox.MAX_CPU_S
    assert niceness >= sandbox.DECODER_NICE
    can_isolate = subprocess.run(["unshare", "--user", "--net", "true"]).returncode == 0
    assert (networks[0] != networks[1]) == can_isolate


def test_child_may_start_slowly_and_report_progress(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    samples = np.arange(3, dtype=np.float32).tobytes()
    info = b'{"rate_hz": 8000, "header_duration_s": null, "title": ""}'
    messages = [b"", b"", b"", info, samples, b"", b'{"mix": "left"}']
    output, child = tmp_path / "output", tmp_path / "child"
    output.write_bytes(b"".join(struct.pack(">I", len(m)) + m for m in messages))
    child.write_text(f"#!/bin/sh\nsleep 3\ncat '{output}'\n")
    child.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(child))
    monkeypatch.setattr(sandbox, "STALL_S", 1.0)
    with write_stereo(tmp_path / "a.wav").open("rb") as file, SandboxedDecoder(file) as decoder:
        np.testing.assert_array_equal(list(decoder), [np.arange(3)])
        assert decoder.mix == "left"


def test_descriptors_above_1023_are_supported(tmp_path: Path) -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (2048, limits[1]))
    with contextlib.ExitStack() as stack:
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, limits)
        file = stack.enter_context(write_stereo(tmp_path / "a.wav").open("rb"))
        for _ in range(1024):
            stack.callback(os.close, os.dup(file.fileno()))
        with SandboxedDecoder(file) as decoder:
            assert sum(len(block) for block in decoder) == 30_000


def test_closing_early_stops_the_child(tmp_path: Path) -> None:
    with write_stereo(tmp_path / "a.wav").open("rb") as file:
        decoder = SandboxedDecoder(file)
        decoder.close()
        decoder.close()
    wait_for_exit(decoder.pid)


def test_killing_the_children_ends_a_decoder_that_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    child = tmp_path / "child"
    child.write_text("#!/bin/sh\nexec sleep 600\n")
    child.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(child))
    killing = threading.Timer(1, sandbox.kill_children)
    with write_stereo(tmp_path / "a.wav").open("rb") as file:
        killing.start()
        started_s = time.monotonic()
        with pytest.raises(ProtocolError):
            SandboxedDecoder(file)
    killing.join()
    assert time.monotonic() - started_s < 60
