"""Frame probabilities for live clients that ask for them: the heat map behind the notes."""

import base64

import numpy as np
from numpy.typing import NDArray

from service.protocol.server_messages import Frames

LOWEST_PITCH = 21
PITCHES = 88  # those of a piano: A0 to C8
_FULL = 255  # the byte of probability 1


class HeatLog:
    """Keeps the probabilities of the frames that a session has computed until they are sent.

    Bounded, because the owner takes them after every push.
    """

    def __init__(self, first_frame: int = 0) -> None:
        """Args:
        first_frame: the client has earlier frames from the session that this one resumes.
        """
        self._first_frame = first_frame
        self._next = first_frame
        self._blocks: list[NDArray[np.uint8]] = []

    def add(self, first_frame: int, probabilities: NDArray[np.float32]) -> None:
        """Adds the next frames, shape [heads, n, 128]; only the first head is used."""
        known = max(0, self._first_frame - first_frame)
        pitches = probabilities[0, known:, LOWEST_PITCH : LOWEST_PITCH + PITCHES]
        if len(pitches):
            self._blocks.append(np.rint(_FULL * pitches.clip(0, 1)).astype(np.uint8))

    def take(self) -> Frames | None:
        if not self._blocks:
            return None
        values = np.concatenate(self._blocks)
        self._blocks = []
        message = Frames(
            frame=self._next,
            count=len(values),
            lowest_pitch=LOWEST_PITCH,
            pitches=PITCHES,
            probabilities_base64=base64.b64encode(values.tobytes()).decode(),
        )
        self._next += len(values)
        return message
