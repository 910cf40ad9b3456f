"""``Stream``: live audio to notes, block by block, without a server."""

import weakref
from collections.abc import Sequence
from typing import Self

import torch
from numpy.typing import ArrayLike

from rse_transcribe.arguments import (
    Model,
    Rate,
    as_float,
    check_not_forked,
    floats_at,
    loaded,
    names,
)
from service.audio.pcm import Downmix
from service.engine.local import LocalEngine
from service.notes.events import Event, Note, is_optional_event
from service.notes.tracker_settings import TrackerSettings
from service.protocol.options import StreamOptions
from service.stream import stream

_DEFAULTS = StreamOptions()


class Stream:
    """Transcribes audio as it comes; the events are those of the websocket.

        with Stream(sample_rate=48_000) as stream:
            for block in microphone:
                for event in stream.push(block):
                    print(event.kind, event.pitch, event.time_s)
            last = stream.finish()

    The events depend on the audio alone, not on the lengths of the blocks. Call it from one thread
    at a time; ``gc.freeze()`` after opening spares a live program pauses of 0.1 s.
    """

    def __init__(
        self,
        sample_rate: Rate,
        *,
        model: Model = "live",
        lookahead_ms: float = _DEFAULTS.lookahead_ms,
        block_frames: int = _DEFAULTS.frames_per_window,
        device: str = "auto",
        instruments: str | Sequence[str] | None = None,
        tuning_hz: float | None = None,
        bends: bool = False,
        updates: bool = False,
    ) -> None:
        """Args:
            sample_rate: of the blocks, a whole number of Hz from 4,000 to 384,000.
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
        audio = floats_at(sample_rate)
        options = StreamOptions(
            lookahead_ms=lookahead_ms,
            block_frames=block_frames,
            instruments=names(instruments),
            tuning_hz=tuning_hz,
            bends=bends,
        )
        self._updates = updates
        self._downmix = Downmix(audio.sample_rate_hz)
        self._engine = LocalEngine(transcriber, workers=1)
        weakref.finalize(self, self._engine.close)  # of a forgotten stream
        settings = TrackerSettings.from_card(transcriber.card)
        self._stream = stream.Stream(transcriber.config, settings, audio, options)
        self._features = self._engine.open_stream(self._stream.positions)
        self._state = "open"

    @property
    def note_on_delay_ms(self) -> float:
        """From a sound to its event, before any computing."""
        return self._stream.delay.note_on_ms

    @property
    def notes(self) -> list[Note]:
        """The notes that have ended, by onset, then pitch."""
        return self._stream.score.notes

    def push(self, block: ArrayLike | torch.Tensor) -> list[Event]:
        """Take the next samples, [n] or [n, channels], of the types that ``transcribe`` takes;
        returns the events that they make known.

        Raises:
            ValueError: no samples, or one that is invalid (NaN, infinite, far above full scale);
                the stream can then only be finished.
            RuntimeError: the stream has been finished or closed, or this process was forked.
        """
        self._check("push")
        samples = as_float(block)
        self._state = "failed"  # unless all goes well
        self._stream.feed_samples(samples if samples.ndim == 1 else self._downmix(samples))
        events = self._heard()
        self._state = "open"
        return events

    def finish(self) -> list[Event]:
        """Transcribe to the last sample and end all notes; nothing if already finished.

        Raises:
            RuntimeError: the stream was closed before, or this process was forked.
        """
        if self._state == "finished":
            return []
        self._check("finish")
        self._stream.end()
        events = self._heard(finish=True)
        self._state = "finished"
        return events

    def close(self) -> None:
        """End the stream; may be called twice. Sounding notes are lost: ``finish`` first."""
        if self._state != "finished":
            self._state = "closed"
        self._engine.close()

    def _heard(self, finish: bool = False) -> list[Event]:
        events: list[Event] = []
        while (due := self._stream.next_windows()) is not None:
            events += self._stream.process_predictions(self._engine.compute(self._features, due))
        events += self._stream.finish() if finish else []
        return [event for event in events if self._updates or not is_optional_event(event)]

    def _check(self, call: str) -> None:
        check_not_forked()
        if self._state == "failed" and call == "push":
            raise RuntimeError("the stream failed at an earlier block; it can only be finished")
        if self._state in ("finished", "closed"):
            raise RuntimeError(f"the stream is {self._state}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
