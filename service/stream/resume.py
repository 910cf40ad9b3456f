"""Resumes a performance after its connection broke, on this server or another.

The new session processes the latest audio again, which restores the state of the old session, bit
for bit unless it used wide windows:

    audio     from_sample --------------------------- broken connection ->
              | filter's lead | window of 8192 | ...
    blocks                    first_block ........... frames ------------>
                              | run the front-end  | events
                                  | tracker's history |
"""

from model.config import INSTRUMENTS, PITCHES
from service.protocol.checkpoint import Checkpoint
from service.protocol.errors import ErrorCode, ProtocolError

# Maximum duration of a performance that can be resumed. The time for analysing the notes at the end
# of a session, and the size of a tick in its MIDI file, are proportional to the duration.
MAX_DAYS = 7


def check_checkpoint(
    checkpoint: Checkpoint, block_frames: int, from_sample: int, frame_s: float
) -> None:
    """Raise ProtocolError if a stream cannot continue from the checkpoint. from_sample: first
    sample that the stream needs, at the input rate."""
    if checkpoint.frames * frame_s > MAX_DAYS * 86_400:
        raise _error(f"a performance of more than {MAX_DAYS} days cannot be resumed")
    if checkpoint.notes > checkpoint.frames * PITCHES:
        raise _error(f"{checkpoint.notes} notes cannot start in {checkpoint.frames} frames")
    for name in [*checkpoint.belief.weights, *(note.instrument for note in checkpoint.sounding)]:
        if name not in (None, *INSTRUMENTS):
            raise _error(f"instruments must be among {', '.join(INSTRUMENTS)}, not {name}")
    for note in checkpoint.sounding:
        if note.time_s > (checkpoint.frames + 1) * frame_s:
            raise _error(
                f"note {note.note_id} starts at {note.time_s:g} s, after the checkpoint's "
                f"{checkpoint.frames} frames"
            )
    if checkpoint.frames % block_frames:
        raise _error(
            f"{checkpoint.frames} frames are not a multiple of block_frames, {block_frames}: "
            "resume with the options of the earlier session"
        )
    if checkpoint.from_sample > from_sample:
        raise _error(
            f"from_sample is {checkpoint.from_sample}, but the audio is needed from sample "
            f"{from_sample} on"
        )


def _error(message: str) -> ProtocolError:
    return ProtocolError(ErrorCode.BAD_RESUME, message)
