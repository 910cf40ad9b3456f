"""``Stream``: transcribes live audio block by block, without a server."""

import weakref
from collections.abc import Sequence
from typing import Self

import torch
from numpy.typing import ArrayLike

from rse_transcribe.arguments import (
    Model,
    Rate,
    as_float,
    as_model,
    check_not_forked,
    float_format,
    instrument_names,
)
from service.audio.pcm import BadAudioError
from service.engine.local import LocalEngine
from service.notes.events import Event, Note, is_optional_event
from service.notes.tracker_settings import TrackerSettings
from service.protocol.options import StreamOptions
from service.stream import stream

_DEFAULTS = StreamOptions()


class Stream:
    """Transcribes live audio, with the same events as the websocket.

        with Stream(sample_rate=48_000) as stream:
            for block in microphone:
                for event in stream.push(block):
                    print(event.kind, event.pitch, event.time_s)
            last = stream.finish()

    The events do not depend on the lengths of the blocks. Use a stream from one thread at a time.
    To avoid pauses of 0.1 s for garbage collection, call ``gc.freeze()`` after opening the stream.
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
        """Open a stream.

        Args:
            sample_rate: sample rate of the blocks, an integer from 4,000 to 384,000 Hz.
            model, device, instruments, tuning_hz: as in ``transcribe``.
            lookahead_ms: duration of the audio that follows a frame and is used to predict it.
                It must be above 0. Other values outside 46 to 372 ms are limited to this range.
                ``note_on_delay_ms`` is the total delay.
            block_frames: number of new frames per window, 1 to 32. Larger values need less
                computing time, but add delay. It is unrelated to the blocks passed to ``push``.
            bends: True to return the pitch of sounding notes for each frame, as ``BendEvent``.
            updates: True to return pedal events and corrected instruments.

        Raises:
            ValueError: the weights are missing, the device or an instrument does not exist, or a
                number is out of range.
            RuntimeError: this process was forked after its parent opened a transcriber or a
                stream.
        """
        network = as_model(model, device)
        audio = float_format(sample_rate)
        options = StreamOptions(
            lookahead_ms=lookahead_ms,
            block_frames=block_frames,
            instruments=instrument_names(instruments),
            tuning_hz=tuning_hz,
            bends=bends,
        )
        self._updates = updates
        self._engine = LocalEngine(network, workers=1)
        weakref.finalize(self, self._engine.close)  # if the caller does not close the stream
        settings = TrackerSettings.from_card(network.card)
        self._stream = stream.Stream(network.config, settings, audio, options)
        self._features = self._engine.open_stream()
        self._state = "open"
        self._events: list[Event] = []  # not yet returned, perhaps because a call failed

    @property
    def note_on_delay_ms(self) -> float:
        """Maximum delay in ms from an onset to its ``note_on``, without computing time."""
        return self._stream.delay.note_on_ms

    @property
    def notes(self) -> list[Note]:
        """Completed notes, sorted by onset, then pitch."""
        return self._stream.collector.notes

    def push(self, block: ArrayLike | torch.Tensor) -> list[Event]:
        """Process the next samples, [n] or [n, channels]. Return the events that are now decided.
        The samples may have any type that ``transcribe`` accepts.

        Raises:
            ValueError: the block is not an array of samples, or a sample is NaN, infinite or far
                above full scale. After an invalid sample, only ``finish`` and ``close`` work.
            RuntimeError: the model failed, an earlier block failed, the stream was finished or
                closed, or this process was forked. After a failed or interrupted block, only
                ``finish`` and ``close`` work.
        """
        self._check("push")
        samples = as_float(block)
        self._state = "failed"  # until the block has been processed
        try:
            self._stream.feed_samples(samples)
        except BadAudioError:
            self._state = "ended"  # the earlier samples are intact
            raise
        self._process_pending()
        self._state = "open"
        return self._take_events()

    def finish(self) -> list[Event]:
        """Transcribe the rest of the audio and end all notes. Return the last events. A second call
        returns none. If the model failed or a call was interrupted, only return the events of this
        call and end the sounding notes, at the last decided frame. Raises RuntimeError if the model
        fails, the stream was closed, or this process was forked."""
        if self._state == "finished":
            return []
        self._check("finish")
        if self._state == "failed":  # windows are missing, so later ones would get wrong times
            self._events += self._stream.close()
        else:
            self._state = "failed"
            self._stream.end()
            self._process_pending()
            self._events += self._stream.finish()
            self._events += self._stream.collector.settle_instruments()
        self._state = "finished"
        return self._take_events()

    def close(self) -> None:
        """Close the stream. Call ``finish`` first, or sounding notes are lost. Idempotent."""
        if self._state != "finished":
            self._state = "closed"
        self._engine.close()

    def _process_pending(self) -> None:
        while (due := self._stream.next_windows()) is not None:
            predictions = self._engine.compute(self._features, due)
            self._events += self._stream.process_predictions(predictions)

    def _take_events(self) -> list[Event]:
        events, self._events = self._events, []
        return [event for event in events if self._updates or not is_optional_event(event)]

    def _check(self, call: str) -> None:
        check_not_forked()
        if self._state in ("failed", "ended") and call == "push":
            raise RuntimeError("the stream failed at an earlier block; it can only be finished")
        if self._state in ("finished", "closed"):
            raise RuntimeError(f"the stream is {self._state}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
