"""``Stream``: live audio to notes, block by block, without a server."""

import asyncio
import os
import weakref
from collections.abc import Callable, Coroutine, Sequence
from threading import Thread
from typing import Any, Self

import torch
from numpy.typing import ArrayLike

from rse_transcribe.arguments import Rate, as_float, as_rate, stream_options
from rse_transcribe.models import Model, loaded
from rse_transcribe.transcription import Note, notes_of
from service.engine.engine import Engine
from service.notes.events import Event, is_update
from service.protocol.options import AudioFormat, Encoding, StreamOptions
from service.session.session import SessionState, TranscriptionSession

_DEFAULTS = StreamOptions()


class Stream:
    """Transcribes audio as it comes; the events are those of the websocket.

        with Stream(sample_rate=48_000) as stream:
            for block in microphone:
                for event in stream.push(block):
                    print(event.kind, event.pitch, event.time_s)
            last = stream.finish()

    The events depend on the audio alone, not on the lengths of the blocks. Not thread-safe: call
    it from one thread at a time, which may have a running event loop.

    ``gc.freeze()`` after opening spares a live program pauses of 0.1 s: Python's garbage collector
    walks through all that torch has imported.
    """

    def __init__(
        self,
        sample_rate: Rate,
        *,
        model: Model = "live",
        lookahead_ms: float = _DEFAULTS.lookahead_ms,
        block_frames: int = _DEFAULTS.frames_per_window,
        device: str = "auto",
        instruments: Sequence[str] | None = None,
        tuning_hz: float | None = None,
        bends: bool = False,
        updates: bool = False,
    ) -> None:
        """Args:
            sample_rate: of the blocks, a whole number of Hz from 8,000 to 192,000.
            model, device, instruments, tuning_hz: see ``transcribe``.
            lookahead_ms: audio after each frame that the model may use, 46 to 372 ms.
                ``note_on_delay_ms`` is the whole delay.
            block_frames: frames computed at once, 1 to 32; more take less time in all and add
                delay.
            bends: also return ``BendEvent``s, the pitch of sounding notes from frame to frame.
            updates: also return pedal events and corrected instruments.

        Raises:
            ValueError: unknown weights or instruments, or a number out of range.
        """
        transcriber = loaded(model, device)
        audio = AudioFormat(encoding=Encoding.PCM_F32LE, sample_rate_hz=as_rate(sample_rate))
        options = stream_options(
            _DEFAULTS, transcriber.config, lookahead_ms, instruments, tuning_hz, bends, block_frames
        )
        self._updates = updates
        engine = Engine(transcriber)
        try:
            engine.warm_up()
            self._session = TranscriptionSession(engine, audio, options)
        except BaseException:
            engine.close()
            raise
        self._loop = asyncio.new_event_loop()
        # A daemon: a program that leaves a stream open ends all the same.
        args = self._loop, engine, self._session
        self._thread = Thread(target=_run, args=args, name="stream", daemon=True)
        self._thread.start()
        self._process = os.getpid()
        # Runs once: when closed, forgotten, or at the end of the program.
        self._close = weakref.finalize(self, self._loop.call_soon_threadsafe, self._loop.stop)

    @property
    def note_on_delay_ms(self) -> float:
        """From a sound to its event, before any computing."""
        return self._session.delay.note_on_ms

    @property
    def notes(self) -> list[Note]:
        """The notes that have ended, by onset, then pitch."""
        return notes_of(self._session.score.notes)

    def push(self, block: ArrayLike | torch.Tensor) -> list[Event]:
        """Take the next samples, [n] or [n, channels], of the types that ``transcribe`` takes;
        returns the events that they make known.

        Raises:
            ValueError: no samples, or one that is invalid (NaN, infinite, far above full scale);
                the stream can then only be finished.
            RuntimeError: the stream has been finished or closed, or this process was forked.
        """
        if self._session.state is SessionState.FINISHED:
            raise RuntimeError("the stream is finished")
        if self._session.state is SessionState.FAILED:
            raise RuntimeError("the stream failed at an earlier block; it can only be finished")
        samples = as_float(block)
        mono = samples if samples.ndim == 1 else samples.mean(axis=1)
        return self._wanted(self._call(self._session.push_samples, mono))

    def finish(self) -> list[Event]:
        """Transcribe to the last sample and end all notes; nothing if already finished.

        Raises:
            RuntimeError: the stream was closed before, or this process was forked.
        """
        if self._session.state is SessionState.FINISHED:
            return []
        return self._wanted(self._call(self._session.finish))

    def close(self) -> None:
        """End the stream; may be called twice. Sounding notes are lost: ``finish`` first."""
        self._close()
        self._thread.join()

    def _call(
        self, method: Callable[..., Coroutine[Any, Any, list[Event]]], *args: object
    ) -> list[Event]:
        if not self._close.alive:
            raise RuntimeError("the stream is closed")
        if os.getpid() != self._process:  # its thread stayed there: nobody would answer
            raise RuntimeError("a forked process cannot use the stream")
        return asyncio.run_coroutine_threadsafe(method(*args), self._loop).result()

    def _wanted(self, events: list[Event]) -> list[Event]:
        return [event for event in events if self._updates or not is_update(event)]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _run(loop: asyncio.AbstractEventLoop, engine: Engine, session: TranscriptionSession) -> None:
    """A stream's thread. It has no reference to the Stream, so that a forgotten one is closed."""
    loop.run_forever()
    session.abort()
    engine.close()
    loop.close()
