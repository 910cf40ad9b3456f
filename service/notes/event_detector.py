"""Converts a stream's probabilities to events: notes with instruments, bends, and pedal events."""

from collections import deque
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from model.config import CENTS, PITCHES
from service.notes.anytime import AnytimeTracker
from service.notes.base_tracker import ANY_PITCH, Tracker
from service.notes.bends import HISTORY_FRAMES, BendTracker
from service.notes.events import Event, NoteEvent, PedalEvent
from service.notes.frames import as_probabilities
from service.notes.instrument_classifier import InstrumentClassifier
from service.notes.monophonic import PIANO
from service.notes.tracker import NoteTracker
from service.notes.tracker_settings import TrackerSettings
from service.protocol.checkpoint import Checkpoint
from service.protocol.midi_file import PEDAL_INSTRUMENTS

TRACKED = ("frame", "onset", "velocity", "offset", "pedal", PIANO)  # rows that trackers use
CHORDAL = ("piano", "electric piano", "harpsichord", "organ", "mallets")
"""Instruments that rarely play monophonic music. If a stream can have only these instruments, its
music is always decoded as polyphonic, which has a shorter delay."""
# The onset probability of a network without an onset head is the rise of its frame probability over
# this number of frames.
RISE = 3
# Number of frames (93 ms) over which the pedal's probability is averaged, because the probability
# flickers while the pedal is half down.
PEDAL_FRAMES = 8


class EventDetector:
    """Detects the events of one stream. The events do not depend on the sizes of the blocks."""

    def __init__(
        self,
        settings: TrackerSettings,
        frame_seconds: float,
        heads: tuple[str, ...],
        instruments: tuple[str, ...] = (),
        last_age: int | None = None,
        bends: bool = False,
    ) -> None:
        """Create a detector.

        Args:
            heads: names of the rows of the probabilities (``ModelConfig.outputs``). Only "frame" is
                required.
            instruments: possible instruments of a note; empty for all instruments of the heads.
            last_age: in anytime mode, the age in frames at which a frame has its full look-ahead.
            bends: True to report the pitch curves of notes. Ignored if ``heads`` lacks CENTS.
        """
        self._classifier = InstrumentClassifier(heads, frame_seconds, instruments, settings)
        self.instruments = self._classifier.classes
        if last_age is not None or self.instruments and set(self.instruments) <= set(CHORDAL):
            settings = replace(settings, line=False)
        sung = settings.line and "voice" in self.instruments
        tracked = [name for name in TRACKED if name in heads]
        tracked += [CENTS] if sung and CENTS in heads else []
        self._rows = [heads.index(name) for name in tracked]
        self._earlier: NDArray[np.float32] | None = None
        if "onset" not in heads:
            tracked.append("onset")
            self._earlier = np.zeros((RISE, PITCHES), np.float32)
        self._tracker: Tracker
        if last_age is None:
            self._tracker = NoteTracker(settings, frame_seconds, tuple(tracked))
        else:
            self._tracker = AnytimeTracker(settings, frame_seconds, tuple(tracked), last_age)
        self._settings, self._frame_seconds = settings, frame_seconds
        self._pedal_row = tracked.index("pedal") if "pedal" in heads else None
        self._presses = deque([0.0] * PEDAL_FRAMES, PEDAL_FRAMES)  # silence precedes a stream
        self._pressed = False
        self._resumed = 0  # first frame that no earlier session has decided
        self.columns = self._tracker.columns
        self.on_delay_frames = self._tracker.on_delay_frames
        self.off_delay_frames = self._tracker.off_delay_frames
        self._cents_row = heads.index(CENTS) if bends and CENTS in heads else None
        self._bends = BendTracker(frame_seconds) if self._cents_row is not None else None
        frames = self._tracker.history_frames, self._classifier.history_frames, PEDAL_FRAMES
        self.history_frames = RISE + max(*frames, HISTORY_FRAMES if self._bends else 0)

    @property
    def state(self) -> dict[str, Any]:
        """The detector's fields of a checkpoint."""
        return {
            "belief": self._classifier.belief,
            "dynamics": self._tracker.dynamics,
            "pedal": self._pressed,
            "curves": self._bends.curves if self._bends else {},
            "free": self._tracker.earliest_onset_frames,
        }

    def resume(self, first_frame: int, checkpoint: Checkpoint) -> None:
        """Continue where another detector of the same stream stopped (``Tracker.resume``)."""
        self._resumed = checkpoint.frames
        self._tracker.resume(first_frame, checkpoint)
        self._classifier.resume(first_frame, checkpoint)
        self._tracker.set_instrument_weights(self._classifier.belief.weights)
        self._pressed = checkpoint.pedal
        if self._bends:
            self._bends.resume(first_frame, checkpoint)

    def push(
        self,
        first_frame: int,
        probabilities: NDArray[np.float32],
        block_frames: int | None = None,
        offset_cents: float = 0.0,
    ) -> list[Event]:
        """Return the events that the next block, [heads, n, 128], decides.

        In anytime mode ``columns`` - 1 earlier frames precede the block, and each frame of the
        block is decoded as the newest frame of a window.

        Args:
            block_frames: number of frames in the block; None if the array is complete. At the end
                of a stream, the array may lack frames. In anytime mode, silence replaces them, so
                that the earlier frames are decided.
            offset_cents: offset of the filterbank in cents, which is added to the row CENTS.
        """
        decoded = as_probabilities(probabilities[self._rows])
        repeated = self.columns - 1  # number of frames before the block
        if block_frames is None:
            block_frames = decoded.shape[1] - repeated
        # Frames whose look-ahead the block completes. At the end of a stream there may be fewer.
        first_settled = repeated - self._tracker.last_age
        settled = decoded[:, first_settled : first_settled + block_frames]
        new = settled.shape[1]
        if self._earlier is not None:
            frames = np.concatenate([self._earlier, decoded[0]])
            onset = np.maximum(0, frames[RISE:] - frames[:-RISE])
            decoded = np.concatenate([decoded, onset[None]])
            self._earlier = frames[new : new + RISE]
        self._tracker.read(decoded, new, offset_cents)
        self._classifier.append(first_frame - repeated, probabilities, new)
        if self._bends:
            cents = probabilities[self._cents_row, repeated : repeated + new]
            missing = new - len(cents)
            self._bends.append_rows(np.pad(cents, ((0, missing), (0, 0))), offset_cents)
        pedal = None if self._pedal_row is None else settled[self._pedal_row, :, ANY_PITCH].tolist()
        events: list[Event] = []
        for i, frame in enumerate(range(first_frame, first_frame + new)):
            note_events = self._tracker.step()
            is_replayed = frame < self._resumed
            if not is_replayed:
                events += self._complete(frame, note_events)
            settled_frame = frame - self._tracker.last_age
            if pedal is None or settled_frame < 0:
                continue
            if self._pedal_changes(pedal[i]) and not is_replayed:
                middle = settled_frame - (PEDAL_FRAMES - 1) // 2  # frame at the centre of the mean
                events.append(self._change_pedal(max(0, middle)))
        return events

    def _complete(self, frame: int, note_events: list[NoteEvent]) -> list[Event]:
        """Add instruments, updates and bends to the tracker's events at a frame."""
        classified = self._classifier.step(frame, note_events)
        for event in classified:
            if event.kind != "note_off":
                self._tracker.set_instrument(event)
                self._tracker.set_instrument_weights(self._classifier.belief.weights)
        return self._bends.step(frame, classified) if self._bends else list(classified)

    def _pedal_changes(self, probability: float) -> bool:
        """Add the next probability. Return True if the mean of the latest PEDAL_FRAMES indicates a
        press or a release of the pedal. A press needs recent notes of an instrument with a pedal,
        unless the instruments are unknown."""
        self._presses.append(probability)
        mean, settings = sum(self._presses) / PEDAL_FRAMES, self._settings
        if self._pressed:
            return mean < settings.pedal_off_threshold
        is_press = mean >= settings.pedal_on_threshold
        if not is_press or not self.instruments:
            return is_press
        return self._classifier.share(PEDAL_INSTRUMENTS) >= settings.pedal_presence_threshold

    def _change_pedal(self, frame: int) -> PedalEvent:
        self._pressed = not self._pressed
        return PedalEvent(self._pressed, frame, round(frame * self._frame_seconds, 6))

    def finish(self, end_frame: int) -> list[Event]:
        """Return the last events of a stream that ends before ``end_frame``."""
        return self._last(end_frame, self._tracker.finish(end_frame))

    def close(self) -> list[Event]:
        """End all notes at the first undecided frame or earlier, and release the pedal."""
        frame = self._tracker.decided_frames
        return self._last(frame, self._tracker.end_all(frame))

    def _last(self, frame: int, note_events: list[NoteEvent]) -> list[Event]:
        events = self._complete(frame, note_events)
        return [*events, self._change_pedal(frame)] if self._pressed else events
