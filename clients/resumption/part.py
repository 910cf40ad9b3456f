"""A part of a performance that the service counts from 0, over successive resumed sessions."""

from clients.events import SessionEvent
from service.protocol.client_messages import Checkpoint, Resume
from service.protocol.server_messages import NoteOff, NoteOn, NoteUpdate, Pedal, Progress, Ready


class Part:
    """Turns the service's counts into those of the performance, and knows how to resume.

    A performance has a single part unless audio is lost.

    Args:
        origin: the sample of the performance at which the part begins.
        first_note: notes that began before it.
        sample_rate: of the audio sent, in Hz.
        ready: of its first session.
    """

    def __init__(self, origin: int, first_note: int, sample_rate: int, ready: Ready) -> None:
        self._origin = origin
        self._first_note = first_note
        self._shift_s = origin / sample_rate
        self._shift_frames = round(self._shift_s * ready.frame_rate_hz)
        self._samples_a_frame = sample_rate / ready.frame_rate_hz
        self._checkpoint: Checkpoint = ready.checkpoint
        self._known_events = 0

    @property
    def needed(self) -> int:
        """The first sample that a resumed session needs again."""
        return self._origin + self._checkpoint.from_sample

    @property
    def decided(self) -> int:
        """Samples up to which all events have been received."""
        return self._origin + round(self._checkpoint.frames * self._samples_a_frame)

    @property
    def sounding(self) -> set[int]:
        """Notes that sound at the latest resume point."""
        return {self._first_note + note.note_id for note in self._checkpoint.sounding}

    @property
    def resume(self) -> Resume:
        """For the ``start`` of a session that resumes this part."""
        return Resume(**self._checkpoint.model_dump(), known_events=self._known_events)

    def hear(self, message: SessionEvent) -> SessionEvent:
        """Process a message of the session; return it in the counts of the performance."""
        match message:
            case NoteOn() | NoteOff():
                self._known_events += 1
                moved = {
                    "note_id": message.note_id + self._first_note,
                    "frame": message.frame + self._shift_frames,
                }
            case NoteUpdate():
                self._known_events += 1
                note_id = message.note_id + self._first_note
                return message.model_copy(update={"note_id": note_id, "seq": 0})
            case Pedal():
                self._known_events += 1
                moved = {"frame": message.frame + self._shift_frames}
            case Progress():
                self._checkpoint = message.checkpoint
                self._known_events = 0
                moved = {
                    "received_samples": message.received_samples + self._origin,
                    "frames": message.frames + self._shift_frames,
                }
            case _:
                return message
        # Message numbers hold only within a session.
        return message.model_copy(
            update={**moved, "time_s": message.time_s + self._shift_s, "seq": 0}
        )
