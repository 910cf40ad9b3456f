"""Live audio not yet transcribed, kept so that a lost connection loses no notes."""

import asyncio
from collections import deque


class Backlog:
    """Mono PCM between the device and the service, bounded, addressed by sample number.

    Sample 0 is the first ever added. Belongs to one event loop; an audio callback hands
    its blocks over with ``call_soon_threadsafe``. Beyond ``max_samples`` the oldest is dropped.
    """

    def __init__(self, frame_bytes: int, max_samples: int) -> None:
        self.frame_bytes = frame_bytes
        self.max_samples = max_samples
        self.start = 0  # the oldest sample that is kept
        self.end = 0
        self._blocks: deque[bytes] = deque()
        self._changed = asyncio.Event()
        self.ended = asyncio.Event()

    def put(self, pcm: bytes) -> None:
        """Append a block of whole samples."""
        if not pcm:
            return
        self._blocks.append(pcm)
        self.end += len(pcm) // self.frame_bytes
        while self.end - self.start > self.max_samples:
            self._pop()
        self._changed.set()

    def finish(self) -> None:
        self.ended.set()
        self._changed.set()

    def release(self, before: int) -> None:
        """Forget whole blocks that end at or before the sample ``before``."""
        while self._blocks and self.start + len(self._blocks[0]) // self.frame_bytes <= before:
            self._pop()

    async def read(self, position: int) -> bytes | None:
        """The audio from sample ``position`` to the end of its block; waits for it.

        None at the end of all audio.

        Raises:
            LookupError: that audio has been dropped.
        """
        while position >= self.end:
            if self.ended.is_set():
                return None
            self._changed.clear()
            await self._changed.wait()
        if position < self.start:
            raise LookupError(f"sample {position} was dropped, {self.start} is the oldest")
        begins = self.end
        for block in reversed(self._blocks):  # a sender is nearly always at the newest
            begins -= len(block) // self.frame_bytes
            if begins <= position:
                return block[(position - begins) * self.frame_bytes :]
        raise AssertionError("the blocks do not reach back to start")

    def _pop(self) -> None:
        self.start += len(self._blocks.popleft()) // self.frame_bytes
