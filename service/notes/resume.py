"""What is known of a performance beside its latest audio: how loud it is, which makes velocities,
and the whole state at a moment, from which another session can continue."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

from pydantic import Field

from model.config import PITCHES
from service.audio.tuning import UNKNOWN, Tuning
from service.notes.bends import Curve
from service.notes.events import NoteEvent
from service.notes.instrument_classifier import InstrumentPrior
from service.notes.tracker_settings import MAX_VELOCITY
from service.protocol.errors import ErrorCode, ProtocolError
from service.protocol.options import Count, Mix

MEAN_VELOCITY = 75
"""Geometric mean of the velocities of rendered performances (77 in validation pieces)."""
LOWEST_LEVEL = math.log(0.02)  # 40 dB below the usual
_KEPT = 0.99
"""Of the weight of earlier notes, from note to note: half of it is 69 notes old or newer. The
correlation with played velocities is the same from 0.98 to 1 and lower below."""
_SOFTEST = 1e-4  # of the head, so that its logarithm exists
_DIGITS = 6


@dataclass(frozen=True, slots=True)
class Dynamics:
    """How loud a performance is, to which the velocity of a note is relative.

    The velocity head hears how loud a note arrives, which depends on microphone and gain as much as
    on the player. With h what it says of a note, 0 to 1, and w the number of recent notes, older
    ones counting less,

        w'        kept w + 1
        level'    (kept w level + log h) / w'
        velocity  MEAN_VELOCITY h / exp(level')

    The first note of a performance is thus of mean velocity, whatever the gain, and a crescendo
    over many notes shows. The level has a lower bound, so that faint noise stays soft, and is
    rounded, so that a resume point carries all of it.

    Attributes:
        level: mean logarithm of what the velocity head said of the recent notes.
        notes: how many recent notes that is, at most 1 / (1 - _KEPT).
    """

    level: Annotated[float, Field(ge=-20, le=0)] = 0.0
    notes: Annotated[float, Field(ge=0, le=1 / (1 - _KEPT) + 1)] = 0.0

    def after(self, loudness: float) -> Dynamics:
        """With one more note, of this output of the velocity head."""
        kept = _KEPT * self.notes
        level = (kept * self.level + math.log(max(loudness, _SOFTEST))) / (kept + 1)
        return Dynamics(round(level, _DIGITS), round(kept + 1, _DIGITS))

    def velocity(self, loudness: float) -> int:
        """MIDI velocity, 1 to 127, of a note that is part of the level."""
        relative = loudness / math.exp(max(self.level, LOWEST_LEVEL))
        return max(1, min(MAX_VELOCITY, math.floor(MEAN_VELOCITY * relative + 0.5)))


def bad_resume_error(message: str) -> ProtocolError:
    """A performance cannot continue from the given point."""
    return ProtocolError(ErrorCode.BAD_RESUME, message)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumePoint:
    """A moment of a performance.

    Attributes:
        from_sample: first sample to be sent again, per channel, at the sent rate.
        frames: frames whose events the client has.
        notes: notes that began in these frames.
        sounding: the ``note_on`` events of those that had not ended, with their latest instruments.
        belief: about the instruments.
        dynamics: the level that velocities are relative to.
        pedal: whether the sustain pedal was down.
        tuning: what is known of it where another session must begin to read.
        curves: of the sounding notes, if bends were asked for.
        free: in anytime mode, the ``earliest_onset_frames`` of the tracker.
        mix: of two channels at ``from_sample``.

    Raises:
        ProtocolError: these notes are impossible.
    """

    from_sample: int = 0
    frames: int = 0
    notes: int = 0
    sounding: tuple[NoteEvent, ...] = ()
    belief: InstrumentPrior = InstrumentPrior()
    dynamics: Dynamics = Dynamics()
    pedal: bool = False
    tuning: Tuning = UNKNOWN
    curves: Annotated[Mapping[Count, Curve], Field(max_length=PITCHES)] = field(
        default_factory=dict
    )
    free: Mapping[Annotated[int, Field(ge=0, lt=PITCHES)], Count] = field(default_factory=dict)
    mix: Mix = Mix.MEAN

    def __post_init__(self) -> None:
        for what in ("pitch", "note_id"):
            if len({getattr(note, what) for note in self.sounding}) < len(self.sounding):
                raise bad_resume_error(f"two notes that sound have the same {what}")
        for note in self.sounding:
            if note.note_id >= self.notes or note.frame >= self.frames:
                raise bad_resume_error(
                    f"note {note.note_id} of frame {note.frame} is not among the {self.notes} notes"
                    f" in the {self.frames} frames before this point"
                )
