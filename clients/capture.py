"""Records audio from an input device of this computer through PortAudio."""

import asyncio
import contextlib
import importlib
import math
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np

FULL_SCALE = 32_768
BLOCK_S = 0.01


class DeviceError(Exception):
    """A device, channel or required library is missing, or the device cannot be opened."""


def load_sounddevice() -> ModuleType:
    """Return the module ``sounddevice``. If the module or the PortAudio library is missing, raise
    a DeviceError that states what to install."""
    try:
        return importlib.import_module("sounddevice")
    except ImportError:
        raise DeviceError("sounddevice is missing: pip install 'rse-transcribe[clients]'") from None
    except OSError:
        raise DeviceError(
            "the PortAudio library is missing: apt-get install libportaudio2"
        ) from None


class Microphone:
    """Input device that delivers 16-bit PCM with ``channels`` channels while it is open."""

    def __init__(
        self, sounddevice: ModuleType, device: int | str | None, channel: int | None
    ) -> None:
        """Raises DeviceError if the device or channel does not exist.

        device: number of the device, or part of its name. None means the system's default.
        channel: the only channel to record, counted from 1. None means the first two, interleaved,
            or the device's only channel.
        """
        self._sounddevice = sounddevice
        self._device = device
        try:
            properties = sounddevice.query_devices(device, "input")
        except (ValueError, sounddevice.PortAudioError) as error:
            name = "default input device" if device is None else f"input device {device!r}"
            raise DeviceError(f"no {name}: {error}") from None
        self.name = str(properties["name"])
        self.sample_rate = round(properties["default_samplerate"])
        available = properties["max_input_channels"]
        if channel is not None and not 1 <= channel <= available:
            message = (
                f"channel {channel} does not exist: {self.name} has {available} input channels"
            )
            raise DeviceError(message)
        # Sound systems mix all channels of a device that is opened with one channel.
        self._opened_channels = min(available, max(2, channel or 0))
        self._recorded_channels = slice(0, 2) if channel is None else slice(channel - 1, channel)
        self.channels = min(2, available) if channel is None else 1
        self._stream: Any = None
        self._closing = False
        self.stopped = False  # True if the device stopped before `close` was called
        self.overflows = 0
        self._peak = 0

    @property
    def level_db(self) -> float:
        """Peak level since the last access, in dB relative to full scale."""
        peak, self._peak = self._peak, 0
        return 20 * math.log10(max(peak, 1) / FULL_SCALE)

    def open(self, put: Callable[[bytes], None], finish: Callable[[], None]) -> None:
        """Start recording. Raises DeviceError. The event loop calls ``put`` with each block of PCM,
        and ``finish`` after the last block, even if the device stops by itself."""
        loop = asyncio.get_running_loop()

        def callback(samples: Any, frames: int, moment: Any, status: Any) -> None:
            # Runs in PortAudio's thread. PortAudio reuses the buffer, so copy the samples.
            if status:
                self.overflows += 1
            recorded = np.ascontiguousarray(samples[:, self._recorded_channels], dtype="<i2")
            self._peak = max(self._peak, int(np.abs(recorded.astype(np.int32)).max(initial=0)))
            _call_in_loop(loop, put, recorded.tobytes())

        def finished() -> None:  # PortAudio also calls this function after `close`
            if not self._closing:
                self.stopped = True
            _call_in_loop(loop, finish)

        try:
            self._stream = self._sounddevice.InputStream(
                device=self._device,
                channels=self._opened_channels,
                samplerate=self.sample_rate,
                blocksize=round(BLOCK_S * self.sample_rate),
                dtype="int16",
                latency="low",
                callback=callback,
                finished_callback=finished,
            )
            self._stream.start()
        except self._sounddevice.PortAudioError as error:
            raise DeviceError(f"cannot open {self.name}: {error}") from None

    def close(self) -> None:
        self._closing = True
        if self._stream is not None:
            self._stream.close()
            self._stream = None


def _call_in_loop(loop: asyncio.AbstractEventLoop, function: Any, *arguments: Any) -> None:
    with contextlib.suppress(RuntimeError):  # the loop is already closed
        loop.call_soon_threadsafe(function, *arguments)
