"""One performance, from its bytes to its notes; live streams and files alike."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from service.engine import Engine, Priority
from service.events import Note, NoteEvent
from service.options import AudioFormat, Delay, StreamOptions
from service.tracker import TrackerSettings


class SessionState(Enum):
    """Where a session stands."""

    OPEN = "open"  # takes audio
    FAILED = "failed"  # saw bad audio or lost the engine; can only be finished or aborted
    FINISHED = "finished"  # all frames are out, all notes have ended
    ABORTED = "aborted"  # ended early, all notes have ended


class SessionStateError(RuntimeError):
    """A call came in a state in which it has no meaning."""


class BufferFullError(RuntimeError):
    """More audio is waiting for transcription than the session may hold; none was taken."""


class TooManyNotesError(RuntimeError):
    """A performance has more notes than the session may keep for its MIDI file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionLimits:
    """What a session may hold.

    Attributes:
        max_notes: notes kept for the final MIDI file.
        max_buffered_ms: audio accepted by ``push`` calls that still wait for an earlier one.
        max_pending_windows: windows handed to the engine at once when audio comes faster than
            real time.
    """

    max_notes: int = 200_000
    max_buffered_ms: float = 10_000.0
    max_pending_windows: int = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """What a session has done so far; ``received_samples`` are of the sent rate, per channel."""

    notes: int
    frames: int
    audio_s: float
    received_samples: int
    dropped_samples: int


class TranscriptionSession:
    """Transcribes one performance.

    PCM bytes -> mono samples -> resampler -> ring -> windows -> engine -> tracker -> events.
    The events depend on the audio and the options alone: not on the sizes of the chunks, their
    pace, or the priority.

    Not thread-safe: all calls come from one event loop. Concurrent ``push`` calls are taken in
    the order of their arrival.
    """

    def __init__(
        self,
        engine: Engine,
        audio: AudioFormat,
        options: StreamOptions,
        *,
        priority: Priority = Priority.LIVE,
        tracker: TrackerSettings | None = None,
        limits: SessionLimits | None = None,
    ) -> None:
        """``tracker``: None takes the settings of the model's card."""
        raise NotImplementedError

    @property
    def state(self) -> SessionState:
        raise NotImplementedError

    @property
    def delay(self) -> Delay:
        """The stated delay; ``delay.total_ms`` is for ``ready``."""
        raise NotImplementedError

    @property
    def totals(self) -> Totals:
        raise NotImplementedError

    @property
    def frames(self) -> int:
        """Frames that have left the engine."""
        raise NotImplementedError

    @property
    def behind_ms(self) -> float:
        """Audio pushed but not yet transcribed, beyond what the stated delay holds back anyway."""
        raise NotImplementedError

    @property
    def notes(self) -> list[Note]:
        """The finished notes, by onset time then pitch."""
        raise NotImplementedError

    async def push(self, data: bytes) -> list[NoteEvent]:
        """Take PCM bytes of any number and return the events that they complete, in time order.

        Raises:
            BadAudioError: a sample is NaN or infinite. Everything before it was transcribed:
                ``error.events`` has those events, and ``finish`` gives the rest.
            EngineError: the model failed on this audio; ``finish`` closes the open notes.
            BufferFullError: too much audio waits already; nothing was taken.
            SessionStateError: the session does not take audio any more.
        """
        raise NotImplementedError

    async def push_samples(self, samples: NDArray[np.float32]) -> list[NoteEvent]:
        """Like ``push`` for float32 samples, shape [n] (mono, at the format's rate)."""
        raise NotImplementedError

    async def finish(self) -> list[NoteEvent]:
        """Transcribe to the last sample and end all notes.

        Raises:
            OddBytesError: the last sample was incomplete; everything else was transcribed and
                ``error.events`` has the last events. The session is finished all the same.
        """
        raise NotImplementedError

    def abort(self) -> list[NoteEvent]:
        """Stop at once and end the open notes at the last frame; safe in any state, twice too."""
        raise NotImplementedError

    def midi(self) -> bytes:
        """The finished notes as a Standard MIDI File."""
        raise NotImplementedError
