"""A moment of a performance, from which another session can continue it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from service.audio.tuning import UNKNOWN, Tuning
from service.notes.bends import Curve
from service.notes.dynamics import Dynamics
from service.notes.events import NoteEvent
from service.notes.naming import Belief
from service.protocol.faults import ErrorCode
from service.protocol.options import Mix, OptionsError


def impossible(message: str) -> OptionsError:
    """A performance cannot continue from the given point."""
    return OptionsError(ErrorCode.BAD_RESUME, message)


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
        free: in anytime mode, the ``first_free_frames`` of the tracker.
        mix: of two channels at ``from_sample``.

    Raises:
        OptionsError: these notes are impossible.
    """

    from_sample: int = 0
    frames: int = 0
    notes: int = 0
    sounding: tuple[NoteEvent, ...] = ()
    belief: Belief = Belief()
    dynamics: Dynamics = Dynamics()
    pedal: bool = False
    tuning: Tuning = UNKNOWN
    curves: Mapping[int, Curve] = field(default_factory=dict)
    free: Mapping[int, int] = field(default_factory=dict)
    mix: Mix = Mix.MEAN

    def __post_init__(self) -> None:
        if len({note.pitch for note in self.sounding}) < len(self.sounding):
            raise impossible("a pitch cannot sound in two notes at once")
        if len({note.note_id for note in self.sounding}) < len(self.sounding):
            raise impossible("two notes have the same note_id")
        for note in self.sounding:
            if note.note_id >= self.notes:
                raise impossible(f"of {self.notes} notes none has the note_id {note.note_id}")
            if note.frame >= self.frames:
                raise impossible(
                    f"note {note.note_id} begins at frame {note.frame}, which is not among the "
                    f"{self.frames} frames before this point"
                )
