"""The opening of a live session: its options, its checks, and `ready`."""

from model.config import HOP
from service.access.clients import Place
from service.live.progress import HeatLog
from service.protocol.client_messages import Checkpoint, Start
from service.protocol.options import AudioFormat
from service.protocol.server_messages import Limits, Ready
from service.session.listening import chosen
from service.session.session import TranscriptionSession
from service.session.wire import resume_point
from service.state import ServiceState


class Opening:
    """The session that a client's `start` asks for.

    Attributes:
        heat: the frames to send, if the client asked for them.
    """

    def __init__(
        self, state: ServiceState, place: Place | None, audio: AudioFormat, start: Start
    ) -> None:
        """place: resized to the options. Raises ProtocolError if they cannot be met."""
        self._settings = state.settings
        self._engine = engine = state.slot.loaded()
        self.options = start.options(state.sessions.default)
        if place is not None and not place.resize(state.sessions.size(self.options)):
            raise state.sessions.refusal(self.options)
        point = resume_point(start.resume) if start.resume is not None else None
        self.heat = HeatLog() if start.frames else None
        self.session = TranscriptionSession(
            engine,
            audio,
            self.options,
            max_notes=self._settings.max_notes,
            resume=point,
            on_frames=self.heat.add if self.heat else None,
        )
        if self.heat and point:  # later frames were not final when the earlier session ended
            self.heat.begin(max(0, point.frames - self.session.late_frames))

    def ready(self, session_id: str, checkpoint: Checkpoint) -> Ready:
        """The message that states the options in effect."""
        config, session, delay = self._engine.config, self.session, self.session.delay
        described = chosen(self.options, config)
        return Ready(
            **described | {"instruments": described["instruments"] or None},
            session_id=session_id,
            sample_rate_hz=config.sample_rate,
            hop_samples=HOP,
            frame_rate_hz=config.sample_rate / HOP,
            delay_ms=round(delay.note_on_ms, 3),
            median_delay_ms=delay.note_on_median_ms,
            note_off_delay_ms=round(delay.note_off_ms, 3),
            replay_ms=round(session.replay_ms, 3),
            checkpoint=checkpoint,
            limits=Limits.model_validate(self._settings, from_attributes=True),
        )
