"""How much audio is under way to the service: the counts behind a sender that holds back.

At the pace of live audio the ``progress`` messages acknowledge in time. A sender that is faster
places markers (``flush``), which come back as soon as the audio before them is transcribed.
"""

from service.protocol.server_messages import Limits

MAX_UNACKNOWLEDGED_S = 2.0
"""Audio that may be under way; the server's own limit, if smaller, takes its place."""


class FlowControl:
    """Samples per channel that were sent, and those that the server has acknowledged.

    Attributes:
        max_message_bytes: within the server's limit, a fraction of what may be under way.
    """

    def __init__(
        self, frame_bytes: int, sample_rate: int, first_sample: int, limits: Limits
    ) -> None:
        """frame_bytes: of one sample of all channels; first_sample: the server counts from it."""
        window_s = min(MAX_UNACKNOWLEDGED_S, limits.max_buffered_ms / 1000)
        self._window = max(1, round(window_s * sample_rate))
        fraction = min(self._window // 8 * frame_bytes, limits.max_message_bytes)
        self.max_message_bytes = max(fraction, frame_bytes)
        self._frame_bytes = frame_bytes
        self._sent_bytes = first_sample * frame_bytes
        self._acknowledged = first_sample
        self._marked = first_sample  # audio before the last marker

    @property
    def full(self) -> bool:
        """Whether too much audio is in transit to send more."""
        return self._sent - self._acknowledged > self._window

    def sent(self, size: int) -> int | None:
        """``size`` bytes were sent; returns the samples up to here if a marker is to follow now."""
        self._sent_bytes += size
        under_way, unmarked = self._sent - self._acknowledged, self._sent - self._marked
        if under_way <= self._window // 2 or unmarked <= self._window // 4:
            return None
        self._marked = self._sent
        return self._marked

    def acknowledge(self, samples: int) -> None:
        self._acknowledged = max(self._acknowledged, samples)

    @property
    def _sent(self) -> int:
        return self._sent_bytes // self._frame_bytes
