"""Fakes of an audio input device and of a MIDI port, and note events."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import mido
import numpy as np

from service.protocol.server_messages import NoteOff, NoteOn

RATE = 16_000


class PortAudioError(Exception):
    """Error of sounddevice."""


class FakeSounddevice:
    """Fake of the module: one playback device, one input device with two channels.

    The last open channel records a ramp, and the others its negative. Their mix is therefore
    silent. The device stops after ``seconds``. With None it continues in real time until it is
    closed: a faster device would overrun every buffer if the machine stalls for some seconds.
    """

    PortAudioError = PortAudioError

    def __init__(self, seconds: float | None = 3.0) -> None:
        self.seconds = seconds
        self.opens = True
        self.overflows = False  # True to report lost samples with each block
        self.default = SimpleNamespace(device=(1, 0))
        self.pause_s = 0.01 if seconds is None else 0.0005  # between two blocks
        self.streams: list[FakeInputStream] = []
        self.devices: list[dict[str, Any]] = [
            {"name": "Speaker", "max_input_channels": 0, "default_samplerate": 48_000.0},
            {"name": "Piano Mic", "max_input_channels": 2, "default_samplerate": float(RATE)},
        ]

    def query_devices(self, device: int | str | None = None, kind: str | None = None) -> Any:
        if kind is None:
            return self.devices
        for number, info in enumerate(self.devices):
            if device in (None, number) or str(device).lower() in info["name"].lower():
                if info["max_input_channels"]:
                    return info
        raise ValueError(f"No {kind} device matching {device!r}")

    def InputStream(self, **options: Any) -> FakeInputStream:
        stream = FakeInputStream(self, **options)
        self.streams.append(stream)
        return stream


class FakeInputStream:
    """Input stream that calls back from a separate thread, as PortAudio does."""

    def __init__(
        self,
        owner: FakeSounddevice,
        *,
        callback: Callable[..., None],
        finished_callback: Callable[[], None],
        blocksize: int,
        **options: Any,
    ) -> None:
        self.owner, self.callback, self.finished = owner, callback, finished_callback
        self.blocksize, self.options = blocksize, options
        self.closed = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        if not self.owner.opens:
            raise PortAudioError("Device unavailable")
        self._thread.start()

    def _run(self) -> None:
        sent = 0
        buffer = np.zeros((self.blocksize, self.options["channels"]), np.int16)
        while not self.closed.is_set():
            if self.owner.seconds is not None and sent >= self.owner.seconds * RATE:
                break
            ramp = np.arange(sent, sent + self.blocksize)
            buffer[:, :-1] = -ramp[:, np.newaxis]
            buffer[:, -1] = ramp
            self.callback(buffer, self.blocksize, None, self.owner.overflows)
            buffer[:] = -1  # PortAudio reuses its buffer.
            sent += self.blocksize
            self.closed.wait(self.owner.pause_s)
        self.finished()

    def close(self) -> None:
        self.closed.set()
        if self._thread.is_alive():
            self._thread.join()


class FakePort:
    """MIDI output that records messages; ``sounding`` are the pitches of open notes."""

    def __init__(self) -> None:
        self.messages: list[mido.Message] = []
        self.closed = False

    def send(self, message: mido.Message) -> None:
        assert not self.closed
        self.messages.append(message)

    def close(self) -> None:
        self.closed = True

    @property
    def sounding(self) -> set[int]:
        pitches: set[int] = set()
        for message in self.messages:
            if message.type == "note_on":
                pitches.add(message.note)
            elif message.type == "note_off":
                pitches.discard(message.note)
        return pitches


def note_on(note_id: int, pitch: int, time_s: float = 0.0, **fields: Any) -> NoteOn:
    defaults = {"velocity": 80, "confidence": 0.5, "frame": int(time_s * 86)}
    return NoteOn(note_id=note_id, pitch=pitch, time_s=time_s, **{**defaults, **fields})


def note_off(note_id: int, pitch: int, time_s: float = 2.5) -> NoteOff:
    return NoteOff(note_id=note_id, pitch=pitch, frame=int(time_s * 86), time_s=time_s)
