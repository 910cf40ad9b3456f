"""Resumes a performance after its connection broke, on this server or another.

The state of a session depends only on its last seconds of audio and on a small `ResumePoint`, which
contains, for example, the sounding notes. The client sends this audio and the point to the new
session, which restores the state of the old session, bit for bit unless it used wide windows:

    audio     from_sample --------------------------- broken connection ->
              | filter's lead | window of 8192 | ...
    blocks                    first_block ........... frames ------------>
                              | run the front-end  | events
                                  | tracker's history |

The server stores nothing, so a client may resume late, and on another replica. The `checkpoint`
message contains the point as a `Checkpoint`. Clients use some of its fields, and preserve all
others, including fields that a newer server adds. The server validates all fields that it uses.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from pydantic import TypeAdapter, ValidationError

from model.config import WINDOW
from model.validation import format_error
from service.audio.resample import RateRatio
from service.notes.resume import ResumePoint, bad_resume_error
from service.protocol.client_messages import Checkpoint
from service.stream.windows import WindowSchedule

_POINT = TypeAdapter(ResumePoint)


@dataclass(frozen=True, slots=True)
class Replay:
    """Audio and windows to process again before a session can continue.

    Attributes:
        first_sample: first sample, at the model's rate.
        first_block: first block to compute.
        first_detected_block: first block for the event detector. Earlier blocks only restore the
            state of the network.
        from_sample: first sample, at the input rate.
        tuning_sample: sample, at the model's rate, from which the tuning is needed.
    """

    first_sample: int
    first_block: int
    first_detected_block: int
    from_sample: int
    tuning_sample: int

    @classmethod
    def before(
        cls,
        frames: int,
        schedule: WindowSchedule,
        ratio: RateRatio,
        history_frames: int,
        preroll_hops: int,
    ) -> Replay:
        """Return the replay that restores the state after ``frames`` frames. history_frames: number
        of earlier frames that the event detector needs."""
        first_detected_block = max(0, frames - history_frames) // schedule.block_frames
        preroll_blocks = -(-preroll_hops // schedule.block_frames)
        first_block = max(0, first_detected_block - preroll_blocks)
        window_begins = max(0, schedule.end_sample(first_block) - WINDOW)
        return cls(
            first_sample=window_begins,
            first_block=first_block,
            first_detected_block=first_detected_block,
            from_sample=ratio.first_input(window_begins),
            tuning_sample=schedule.end_sample(first_block) if first_block else 0,
        )

    def check(self, point: ResumePoint, block_frames: int, frame_s: float) -> None:
        """Raise ProtocolError if the point contradicts itself or this replay."""
        for note in point.sounding:
            if note.time_s > (point.frames + 1) * frame_s:
                raise bad_resume_error(
                    f"note {note.note_id} starts at {note.time_s:g} s, after the checkpoint's "
                    f"{point.frames} frames"
                )
        if point.frames % block_frames:
            raise bad_resume_error(
                f"{point.frames} frames are not a multiple of block_frames, {block_frames}: resume "
                "with the options of the earlier session"
            )
        if point.from_sample > self.from_sample:
            raise bad_resume_error(
                f"from_sample is {point.from_sample}, but the audio is needed from sample "
                f"{self.from_sample} on"
            )


def checkpoint_of(session_id: str, point: ResumePoint) -> Checkpoint:
    """Return the message for a point. An empty belief, dynamics or tuning is omitted."""
    state = {field.name: getattr(point, field.name) for field in fields(point)}
    state["belief"] = point.belief if point.belief.weights else None
    state["dynamics"] = point.dynamics if point.dynamics.notes else None
    state["tuning"] = point.tuning if point.tuning.blocks else None
    return Checkpoint.model_validate({"session_id": session_id, **state}, from_attributes=True)


def resume_point(checkpoint: Checkpoint) -> ResumePoint:
    """Validate a client's checkpoint. Raises ProtocolError."""
    state = checkpoint.model_dump(exclude_none=True)
    state["sounding"] = [{**note, "kind": "note_on"} for note in state["sounding"]]
    try:
        return _POINT.validate_python(state)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise bad_resume_error(format_error(first)[:300]) from None
