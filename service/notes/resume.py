"""Loudness of a performance, and the point at which another session can resume it."""

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
"""Geometric mean of the velocities in rendered performances (77 in validation pieces)."""
MIN_LEVEL = math.log(0.02)  # lower bound of the level in ``Dynamics.velocity``
_DECAY = 0.99
"""Factor by which each note reduces the weights of the earlier notes. The latest 69 notes then have
half of the total weight. Factors from 0.98 to 1 were equally good: the detected velocities had the
same correlation with the true velocities. Smaller factors were worse."""
_MIN_LOUDNESS = 1e-4  # minimum output of the velocity head, so that its logarithm exists
_DIGITS = 6


@dataclass(frozen=True, slots=True)
class Dynamics:
    """Loudness of a performance, to which the velocities of its notes are relative.

    The velocity head predicts the loudness of a note in the recording. This loudness depends on the
    microphone and the gain as much as on the performer. Let h be the head's output for a note, 0 to
    1, and w the number of recent notes, in which older notes count less. Each note updates w and
    the level, which is the mean of log h. Its velocity follows from h and the level:

        w'        decay w + 1
        level'    (decay w level + log h) / w'
        velocity  MEAN_VELOCITY h / exp(level')

    The first note of a performance has the mean velocity, regardless of the gain. A crescendo over
    many notes is preserved. Velocities use a lower bound of the level, so that faint noise stays
    soft. The level is rounded, so that a resume point contains it exactly.

    Attributes:
        level: mean logarithm of the velocity head's output for the recent notes.
        notes: number of recent notes, at most 1 / (1 - _DECAY).
    """

    level: Annotated[float, Field(ge=-20, le=0)] = 0.0
    notes: Annotated[float, Field(ge=0, le=1 / (1 - _DECAY) + 1)] = 0.0

    def after(self, loudness: float) -> Dynamics:
        """Return the state after one more note. loudness: output of the velocity head."""
        weight = _DECAY * self.notes
        level = (weight * self.level + math.log(max(loudness, _MIN_LOUDNESS))) / (weight + 1)
        return Dynamics(round(level, _DIGITS), round(weight + 1, _DIGITS))

    def velocity(self, loudness: float) -> int:
        """Return the MIDI velocity, 1 to 127, of a note that the level already includes."""
        relative = loudness / math.exp(max(self.level, MIN_LEVEL))
        return max(1, min(MAX_VELOCITY, math.floor(MEAN_VELOCITY * relative + 0.5)))


def bad_resume_error(message: str) -> ProtocolError:
    return ProtocolError(ErrorCode.BAD_RESUME, message)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumePoint:
    """State from which another session can continue a performance.

    Attributes:
        from_sample: first sample to send again, per channel, at the input rate.
        frames: number of frames whose events the client has.
        notes: number of notes that started in these frames.
        sounding: ``note_on`` of each sounding note, with its latest instrument.
        belief: numbers of recent notes by instrument.
        dynamics: loudness of the recent notes.
        pedal: True if the sustain pedal is down.
        tuning: tuning estimate at the start of the replay.
        curves: pitch curves of the sounding notes, if bends were requested.
        free: in anytime mode, the ``earliest_onset_frames`` of the tracker.
        mix: mix of two channels at ``from_sample``.

    Raises:
        ProtocolError: the sounding notes contradict each other, ``notes`` or ``frames``.
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
        for name in ("pitch", "note_id"):
            if len({getattr(note, name) for note in self.sounding}) < len(self.sounding):
                raise bad_resume_error(f"two sounding notes have the same {name}")
        for note in self.sounding:
            if note.note_id >= self.notes or note.frame >= self.frames:
                raise bad_resume_error(
                    f"note {note.note_id} of frame {note.frame} is not among the {self.notes} notes"
                    f" in the {self.frames} frames before this point"
                )
