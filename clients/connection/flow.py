"""How much audio is under way to the service: the counts behind a sender that holds back.

At the pace of live audio the ``progress`` messages acknowledge in time. A sender that is faster
places markers (``flush``), which come back as soon as the audio before them is transcribed.
"""

from service.protocol.server_messages import Limits

MAX_UNACKNOWLEDGED_S = 2.0
"""Audio that may be under way; the server's own limit, if smaller, takes its place."""


class FlowControl:
    """Samples per channel that were sent, and those that the server has acknowledged.

    Args:
        frame_bytes: bytes of one sample of all channels.
        sample_rate: of the audio, in Hz.
        first_sample: the server counts from this one.
    """

    def __init__(
        self,
        frame_bytes: int,
        sample_rate: int,
        first_sample: int = 0,
    ) -> None:
        self.acknowledged_samples = first_sample
        self._frame_bytes = frame_bytes
        self._sample_rate = sample_rate
        self._window_samples = self._samples(MAX_UNACKNOWLEDGED_S)
        self._max_message_bytes: int | None = None
        self._sent_bytes = first_sample * frame_bytes
        self._marked_samples = first_sample  # audio before the last marker

    def limit(self, limits: Limits) -> None:
        """Apply the limits of the server's ``ready`` where they are tighter."""
        window = self._samples(limits.max_buffered_ms / 1000)
        self._window_samples = min(self._window_samples, window)
        self._max_message_bytes = limits.max_message_bytes

    @property
    def sent_samples(self) -> int:
        return self._sent_bytes // self._frame_bytes

    @property
    def max_message_bytes(self) -> int:
        """Bytes of one message: within the server's limit, a fraction of what may be under way."""
        fraction = self._window_samples // 8 * self._frame_bytes
        if self._max_message_bytes is not None:
            fraction = min(fraction, self._max_message_bytes)
        return max(fraction, self._frame_bytes)

    @property
    def full(self) -> bool:
        """Whether too much audio is in transit to send more."""
        return self._under_way > self._window_samples

    def sent(self, size: int) -> int | None:
        """``size`` bytes were sent; returns the samples up to here if a marker is to follow now."""
        self._sent_bytes += size
        unmarked = self.sent_samples - self._marked_samples
        if self._under_way <= self._window_samples // 2 or unmarked <= self._window_samples // 4:
            return None
        self._marked_samples = self.sent_samples
        return self._marked_samples

    def acknowledge(self, samples: int) -> None:
        self.acknowledged_samples = max(self.acknowledged_samples, samples)

    @property
    def _under_way(self) -> int:
        return self.sent_samples - self.acknowledged_samples

    def _samples(self, seconds: float) -> int:
        return max(1, round(seconds * self._sample_rate))
