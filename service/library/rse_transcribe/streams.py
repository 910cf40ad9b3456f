"""``Stream``: live audio to notes, block by block, without a server."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Self

from anyio.from_thread import start_blocking_portal
from numpy.typing import NDArray

from rse_transcribe.models import Model, loaded
from rse_transcribe.samples import as_float
from rse_transcribe.transcription import Note, notes_of
from service.engine.engine import Engine
from service.notes.events import Event, is_update
from service.protocol.options import AudioFormat, Encoding, StreamOptions
from service.session.session import TranscriptionSession

_DEFAULTS = StreamOptions()


class Stream:
    """Transcribes audio as it comes; the events are those of the websocket.

        with Stream(sample_rate=48_000) as stream:
            for block in microphone:
                for event in stream.push(block):
                    print(event.kind, event.pitch, event.time_s)
            last = stream.finish()

    The events depend on the audio alone, not on the lengths of the blocks. Not thread-safe: one
    thread at a time calls it, which may be one with a running event loop.
    """

    def __init__(
        self,
        sample_rate: int,
        *,
        model: Model = "live",
        lookahead_ms: float = _DEFAULTS.lookahead_ms,
        block_frames: int = _DEFAULTS.block_frames,
        device: str = "auto",
        instruments: Sequence[str] = (),
        updates: bool = False,
    ) -> None:
        """Args:
            sample_rate: of the blocks, in Hz, 8,000 to 192,000.
            model, device, instruments: see ``transcribe``.
            lookahead_ms: audio after a frame that the model hears before it speaks of it, 50 to
                370 ms. ``note_on_delay_ms`` is the whole delay.
            block_frames: frames computed at once; more cost less time and more delay.
            updates: events of the pedal too, and of notes whose instrument turns out another.

        Raises:
            ValueError: unknown weights or instruments, or a number out of range.
        """
        audio = AudioFormat(encoding=Encoding.PCM_F32LE, sample_rate_hz=sample_rate)
        options = StreamOptions(
            lookahead_ms=lookahead_ms, block_frames=block_frames, instruments=tuple(instruments)
        )
        self._updates = updates
        with ExitStack() as stack:
            engine = stack.enter_context(Engine(loaded(model, device)))
            engine.warm_up()
            self._portal = stack.enter_context(start_blocking_portal())
            self._session = self._portal.call(TranscriptionSession, engine, audio, options)
            stack.callback(self._portal.call, self._session.abort)
            self._stack = stack.pop_all()

    @property
    def note_on_delay_ms(self) -> float:
        """From a sound to its event, before any computing."""
        return self._session.delay.note_on_ms

    @property
    def notes(self) -> list[Note]:
        """The notes that have ended, by onset, then pitch."""
        return notes_of(self._session.notes)

    def push(self, block: NDArray) -> list[Event]:
        """Take the next samples, [n] or [n, channels], floats of full scale 1 or integers; returns
        the events that they make known.

        Raises:
            ValueError: no samples, or one that is no sound (NaN, infinite).
            RuntimeError: the stream has been finished or closed.
        """
        samples = as_float(block)
        mono = samples if samples.ndim == 1 else samples.mean(axis=1)
        return self._wanted(self._portal.call(self._session.push_samples, mono))

    def finish(self) -> list[Event]:
        """Transcribe to the last sample and end all notes; nothing if that has been done."""
        return self._wanted(self._portal.call(self._session.finish))

    def close(self) -> None:
        """Let go of the model; safe to call twice. Notes that sound are dropped: see ``finish``."""
        self._stack.close()

    def _wanted(self, events: list[Event]) -> list[Event]:
        return [event for event in events if self._updates or not is_update(event)]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
