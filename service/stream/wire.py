"""The pipeline's events and resume points as messages of the protocol, and back."""

from dataclasses import fields

from service.notes.bends import Curve
from service.notes.dynamics import Dynamics
from service.notes.events import Event, NoteEvent
from service.notes.naming import Belief
from service.notes.resume import ResumePoint, impossible
from service.notes.tracker_settings import MOST_KEPT
from service.notes.tuning import UNKNOWN, Tuning
from service.protocol.client_messages import Checkpoint, SoundingNote
from service.protocol.server_messages import EVENTS, NoteBend, NoteOff, NoteOn, NoteUpdate, Pedal

_MOST_NOTES = 1 / (1 - MOST_KEPT) + 1  # that a belief can hold


def event_message(event: Event) -> NoteOn | NoteUpdate | NoteOff | NoteBend | Pedal:
    return EVENTS[event.kind].model_validate(event, from_attributes=True)


def checkpoint_of(session_id: str, point: ResumePoint) -> Checkpoint:
    given = {field.name: getattr(point, field.name) for field in fields(point)}
    given["belief"] = point.belief if point.belief.weights else None
    given["dynamics"] = point.dynamics if point.dynamics.notes else None
    given["tuning"] = point.tuning if point.tuning.blocks else None
    return Checkpoint.model_validate({"session_id": session_id, **given}, from_attributes=True)


def resume_point(checkpoint: Checkpoint) -> ResumePoint:
    """The resume point of a client's message; raises OptionsError if it is impossible."""
    belief, dynamics, tuning = checkpoint.belief, checkpoint.dynamics, checkpoint.tuning
    if belief is not None and max(belief.weights.values(), default=0) > _MOST_NOTES:
        raise impossible(f"no class of a belief weighs more than {_MOST_NOTES:.0f} notes")
    known = set(SoundingNote.model_fields)
    return ResumePoint(
        **checkpoint.model_dump(include={"from_sample", "frames", "notes", "pedal", "free", "mix"}),
        sounding=tuple(
            NoteEvent(kind="note_on", **note.model_dump(include=known))
            for note in checkpoint.sounding
        ),
        belief=Belief(belief.weights, belief.frame) if belief else Belief(),
        dynamics=Dynamics(dynamics.level, dynamics.notes) if dynamics else Dynamics(),
        curves={note: Curve(c.frame, c.cents) for note, c in checkpoint.curves.items()},
        tuning=Tuning(tuning.along, tuning.across, tuning.blocks, tuning.shift)
        if tuning
        else UNKNOWN,
    )
