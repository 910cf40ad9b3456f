"""How many live sessions this machine can carry on time, measured at start-up.

For a second or two, sessions with default options process audio as fast as they can, with all that
the process does for a session except its socket. Other load slows a trial down, so the best of a
few counts, and sessions are admitted up to a fraction of it. The result is cached for the next
start with the same processor, cores, weights and versions.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import os
import platform
import time
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch

from model.config import HOP
from service.engine.engine import Engine
from service.protocol.options import AudioFormat, Encoding, StreamOptions
from service.session.session import TranscriptionSession

logger = logging.getLogger(__name__)

LOAD = 0.6
"""Fraction of the measured throughput that admitted sessions may use. The rest serves sockets,
batches of recordings that run when a window becomes due, and windows that become due together."""

_TRIALS = 3
_TRIAL_S = 0.4
_STREAMS_EACH = 2  # per worker of the engine
_RATE_HZ = 48_000
_CHUNK_S = 0.1
_LEVEL = 0.05  # of the noise


@dataclass(frozen=True)
class Capacity:
    """The capacity of a machine.

    Attributes:
        windows_per_s: windows of default streams that all cores compute per second.
        sessions: live sessions with default options that stay on time.
    """

    windows_per_s: float
    sessions: int

    @classmethod
    def of(cls, windows_per_s: float, window_s: float) -> Capacity:
        """window_s: seconds of audio from each window of a stream to the next."""
        return cls(windows_per_s, max(1, int(LOAD * windows_per_s * window_s)))


def default_cache() -> Path:
    """The file in the user's cache folder."""
    folder = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(folder, "rse-transcribe", "capacity.json")


def capacity(engine: Engine, device: str, cache: Path) -> Capacity:
    """The capacity with this engine, which is warm and has no streams yet.

    device: where the engine computes. Takes a second or two unless the result is cached.
    """
    options = StreamOptions()
    window_s = options.frames_per_window * HOP / engine.config.sample_rate
    key = _key(engine, device)
    windows_per_s = _kept(cache).get(key)
    source = f"cached in {cache}"
    if windows_per_s is None:
        source = "measured"
        windows_per_s = max(asyncio.run(_trial(engine, options)) for _ in range(_TRIALS)) / window_s
        _keep(cache, key, windows_per_s)
    found = Capacity.of(windows_per_s, window_s)
    logger.info(
        "admitting %d live sessions: %.0f windows per second (%s)",
        *(found.sessions, windows_per_s, source),
    )
    return found


async def _trial(engine: Engine, options: StreamOptions) -> float:
    """Seconds of audio transcribed per second."""
    audio = AudioFormat(encoding=Encoding.PCM_S16LE, sample_rate_hz=_RATE_HZ)
    noise = np.random.default_rng(0).standard_normal(int(_RATE_HZ * _CHUNK_S))
    chunk = (32767 * _LEVEL * noise).astype("<i2").tobytes()
    began_s = time.monotonic()

    async def stream() -> float:
        session = TranscriptionSession(engine, audio, options)
        chunks = 0
        try:
            while time.monotonic() < began_s + _TRIAL_S:
                await session.push(chunk)
                chunks += 1
        finally:
            session.abort()
        return chunks * _CHUNK_S

    heard_s = sum(await asyncio.gather(*(stream() for _ in range(_STREAMS_EACH * engine.workers))))
    return heard_s / (time.monotonic() - began_s)


def _key(engine: Engine, device: str) -> str:
    """Digest of everything that the result depends on."""
    parts = {
        "processor": _processor() if device == "cpu" else torch.cuda.get_device_name(device),
        "workers": engine.workers,
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "torch": version("torch"),
        "config": engine.config.to_json(),
        "card": dict(engine.card),
    }
    text = json.dumps(parts, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def _processor() -> str:
    """The processor's model name, as precisely as the system states it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else f"{platform.machine()} {platform.processor()}"


def _kept(cache: Path) -> dict[str, float]:
    try:
        values = json.loads(cache.read_text(encoding="utf-8"))
        return {key: float(value) for key, value in values.items() if float(value) > 0}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


def _keep(cache: Path, key: str, windows_per_s: float) -> None:
    """If the folder is not writable, the next start measures again."""
    try:
        cache.parent.mkdir(parents=True, exist_ok=True)
        partial = cache.with_suffix(f".{os.getpid()}")
        partial.write_text(json.dumps({**_kept(cache), key: windows_per_s}), encoding="utf-8")
        partial.replace(cache)
    except OSError as error:
        logger.info("cannot cache the capacity: %s", error)
