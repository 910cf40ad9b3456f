"""A performance over several sessions: samples, frames and notes counted across all of them."""

import base64

from clients.connection.backlog import Backlog
from clients.errors import TranscriptionError
from clients.events import Connected, Gap, SessionEvent
from clients.midi.notes import NoteList
from clients.resumption.outlet import Outlet
from clients.resumption.part import Part
from service.protocol.client_messages import Resume, Start
from service.protocol.server_messages import Done, Progress, Ready


class Performance:
    """Follows successive sessions, passes on their events and knows where the next continues.

    Args:
        options: format of the audio, and transcription options.
        audio: drops what no session will need again.
        outlet: receives the events.

    Attributes:
        ready: of the latest session.
        notes: all notes so far.
        lost_samples: samples per channel that were dropped and never transcribed.
        sessions: number of sessions so far.
    """

    def __init__(self, options: Start, audio: Backlog, outlet: Outlet) -> None:
        self.ready: Ready | None = None
        self.notes = NoteList()
        self.lost_samples = 0
        self.sessions = 0
        self._options = options
        self._audio = audio
        self._outlet = outlet
        self._part: Part | None = None
        self._ended_at = 0  # samples covered by the parts that have ended

    @property
    def options(self) -> Start:
        """Options for the next session: those accepted for the first."""
        if self.ready is None:
            return self._options
        taken = {"mode", "lookahead_ms", "block_frames", "model"}
        return self._options.model_copy(update={name: getattr(self.ready, name) for name in taken})

    @property
    def resumable(self) -> bool:
        return self._part is not None

    @property
    def needed(self) -> int:
        """The first sample to send to a session that has begun."""
        assert self._part is not None
        return self._part.needed

    @property
    def decided(self) -> int:
        return self._part.decided if self._part else self._ended_at

    def resume(self) -> Resume | None:
        """For the ``start`` of the next session; None if it resumes nothing."""
        if self._part is not None and self._part.needed < self._audio.start:
            self.end_part()  # audio was dropped, so the part cannot be resumed
        return self._part.resume if self._part else None

    def hear(self, message: Ready | SessionEvent) -> None:
        if isinstance(message, Ready):
            self._begin(message)
            return
        assert self._part is not None
        event = self._part.hear(message)
        self.notes.event(event)
        self._outlet.follow(event)
        if isinstance(event, Progress):
            self._audio.release(self._part.needed)
            self._outlet.keep(self._part.sounding)

    def _begin(self, ready: Ready) -> None:
        self.ready = ready
        self.notes.programs = ready.instruments or {}
        self.sessions += 1
        resumed = self._part is not None
        if self._part is None:
            origin = max(self._audio.start, self.decided)
            lost = origin - self.decided
            self._part = Part(origin, len(self.notes.notes), self._options.sample_rate, ready)
            if lost:
                self.lost_samples += lost
                gap = Gap(lost_samples=lost, time_s=origin / self._options.sample_rate)
                self._outlet.put(gap)
        self._outlet.release()
        self._outlet.put(Connected(ready=ready, resumed=resumed))

    def end_part(self) -> None:
        """End the part, which nothing resumes, and the notes that sound."""
        if self._part is not None:
            self._ended_at = self._part.decided
            self._part = None
        for note in self.notes.sounding:
            self.notes.event(self._outlet.off(note.note_id, note.pitch))
        self._outlet.silence()

    def whole(self, done: Done) -> Done:
        """The last session's ``done``, with the counts of the whole performance."""
        if self.sessions == 1:
            return done
        samples = self._audio.end
        totals = done.totals.model_copy(
            update={
                "notes": len(self.notes.notes),
                "received_samples": samples,
                "audio_s": samples / self._options.sample_rate,
            }
        )
        midi = base64.b64encode(self.notes.midi()).decode()
        return done.model_copy(update={"totals": totals, "midi_base64": midi})

    def failed(self, failure: TranscriptionError) -> TranscriptionError:
        """The failure that ends the performance, with its result so far."""
        if failure.done is not None:
            failure.done = self.whole(failure.done)
        return failure
