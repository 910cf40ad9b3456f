"""An engine whose workers compute in processes of their own."""

import gc
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from model.config import HOP, WINDOW
from model.transcriber import TranscriptionModel
from service.engine import runners, segments
from service.engine.batching import EngineError, EngineSettings, Priority
from service.engine.engine import Engine
from service.engine.processes import AVAILABLE
from service.protocol.options import FILE_OPTIONS, StreamOptions
from tests.networks import HISTORY
from tests.service.sessions import listen, pcm, to_bytes

pytestmark = pytest.mark.skipif(not AVAILABLE, reason="worker processes need Linux")

PATIENCE_S = 240.0
POSITIONS = slice(8, 16)


def model() -> TranscriptionModel:
    torch.manual_seed(0)
    return TranscriptionModel(HISTORY).eval()


def children() -> list[int]:
    """The worker processes of this one."""
    found = Path(f"/proc/{os.getpid()}/task").glob("*/children")
    return sorted({int(pid) for one in found for pid in one.read_text().split()})


def runs(pid: int) -> bool:
    """Not if it has ended and waits to be reaped, as orphans do where nobody reaps them."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(runners, "_ALONE_MS", math.inf)  # a worker per core, however slow
        patched.setenv("OMP_NUM_THREADS", "2")
        with Engine(model(), EngineSettings(worker_processes=2)) as engine:
            engine.warm_up()
            assert engine.workers == 2
            yield engine


def answer(engine: Engine, windows: int = 2) -> np.ndarray:
    """Of a new stream of noise."""
    noise = np.random.default_rng(0).standard_normal(WINDOW + 8 * HOP * windows, np.float32)
    stream = engine.open_stream(Priority.LIVE, POSITIONS)
    try:
        given = [noise[8 * HOP * i :][:WINDOW] for i in range(windows)]
        return np.concatenate([stream.submit([one], 8).result(PATIENCE_S) for one in given])
    finally:
        stream.close()


@pytest.mark.parametrize("priority", list(Priority))
def test_processes_give_the_bits_of_threads(
    engine: Engine, priority: Priority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segments, "SEGMENT_WINDOWS", 16)
    options = FILE_OPTIONS if priority is Priority.FILE else StreamOptions()
    samples = 0.1 * np.random.default_rng(0).standard_normal(61 * 16 * HOP, np.float32)
    audio = pcm(HISTORY.sample_rate)
    data = to_bytes(samples, audio)
    with Engine(model()) as threads:
        expected = listen(threads, data, audio, options, priority=priority)
    found = listen(engine, data, audio, options, priority=priority)
    assert found[0] == expected[0]
    np.testing.assert_array_equal(found[1], expected[1])


def test_live_streams_are_shared_out_and_forgotten(engine: Engine) -> None:
    hops = [2, 8, 8, 8, 8, 4, 8]
    streams = [engine._open(Priority.LIVE, POSITIONS) for _ in hops]
    window = np.zeros(WINDOW, np.float32)
    for stream, new_hops in zip(streams, hops, strict=True):
        stream.submit([window], new_hops).result(PATIENCE_S)
    # The first asks for as many windows as the next four, the sixth for as many as two of them.
    assert [stream.worker for stream in streams] == [0, 1, 1, 1, 1, 0, 1]
    for stream in streams:
        stream.close()
    del stream
    streams.clear()
    gc.collect()  # those of earlier tests
    assert all(len(process._known) <= 1 for process in engine._processes)  # of its latest batch


def test_a_process_that_ends_is_replaced_and_its_batch_computed(engine: Engine) -> None:
    expected = answer(engine)
    for process in engine._processes:
        process._process.kill()
    np.testing.assert_array_equal(answer(engine), expected)
    for process in engine._processes:  # it gets the batch, and ends
        process._process.send_signal(signal.SIGSTOP)
    stream = engine.open_stream(Priority.LIVE, POSITIONS)
    asked = stream.submit([np.zeros(WINDOW, np.float32)], 8)
    for process in engine._processes:
        process._process.kill()
    assert asked.result(PATIENCE_S).shape[0] == 1
    stream.close()
    np.testing.assert_array_equal(answer(engine), expected)


def test_a_batch_that_ends_every_process_fails(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one that no memory is left for."""
    expected = answer(engine)
    for process in engine._processes:
        process._process.kill()
        monkeypatch.setattr(process, "_start", lambda: None)  # there is no other
    with pytest.raises(EngineError, match="a worker process ended"):
        answer(engine)
    monkeypatch.undo()
    np.testing.assert_array_equal(answer(engine), expected)


def test_a_process_that_does_not_start_leaves_the_others_the_work(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its streams fail, new ones do not, and it is tried again."""
    expected = answer(engine)
    gone, _ = engine._processes

    def fail() -> None:
        raise OSError("no memory")

    with monkeypatch.context() as patched:
        patched.setattr(gone, "_pause_s", 0.1)
        patched.setattr(gone, "_launch", fail)
        gone._process.kill()
        with pytest.raises(EngineError, match="a worker process ended"):
            answer(engine)  # nothing else is under way, so it is the first worker's
        for _ in range(4):
            np.testing.assert_array_equal(answer(engine), expected)
        assert engine.ready
    deadline = time.monotonic() + PATIENCE_S
    while gone.down:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    streams = [engine._open(Priority.LIVE, POSITIONS) for _ in range(2)]
    for stream in streams:
        stream.submit([np.zeros(WINDOW, np.float32)], 8).result(PATIENCE_S)
    assert {stream.worker for stream in streams} == {0, 1}
    for stream in streams:
        stream.close()


def test_an_abandoned_engine_leaves_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runners, "_ALONE_MS", math.inf)
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    others = children()
    engine = Engine(model(), EngineSettings(worker_processes=2))
    engine.warm_up()
    for process in engine._processes:
        process._process.send_signal(signal.SIGSTOP)  # it hangs
    stream = engine.open_stream(Priority.LIVE, POSITIONS)
    asked = stream.submit([np.zeros(WINDOW, np.float32)], 8)
    engine.abandon()
    with pytest.raises(EngineError):
        asked.result(PATIENCE_S)
    engine.close()
    assert children() == others


def test_processes_end_with_the_one_that_started_them() -> None:
    program = """
import math, os, torch
from service.engine import runners
from service.engine.batching import EngineSettings
from service.engine.engine import Engine
from tests.service.engine.test_processes import children, model
runners._ALONE_MS = math.inf
engine = Engine(model(), EngineSettings(worker_processes=2))
engine.warm_up()
print(*children(), flush=True)
os.kill(os.getpid(), 9)
"""
    environment = {**os.environ, "OMP_NUM_THREADS": "2"}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True
    )
    started = [int(pid) for pid in done.stdout.split()]
    assert len(started) == 2, done.stderr
    deadline_s = time.monotonic() + PATIENCE_S
    while any(map(runs, started)):
        assert time.monotonic() < deadline_s
        time.sleep(0.05)
