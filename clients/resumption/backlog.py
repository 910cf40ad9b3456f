"""Live audio not yet transcribed, kept so that a lost connection loses no notes."""

import asyncio
from collections.abc import Callable

from clients.errors import ConnectionLostError


class Changes:
    """Like ``asyncio.Condition``, but notifying needs no ``await``."""

    def __init__(self) -> None:
        self._changed = asyncio.Event()

    def notify(self) -> None:
        """Wake all waiting tasks to check again."""
        self._changed.set()
        self._changed.clear()

    async def until(self, holds: Callable[[], bool]) -> None:
        while not holds():
            await self._changed.wait()


class Backlog:
    """PCM between the device and the service, bounded, addressed by sample number.

    Sample 0 is the first ever added. Belongs to one event loop; an audio callback hands
    its blocks over with ``call_soon_threadsafe``. Beyond ``max_samples`` the oldest is dropped.

    Attributes:
        start: the oldest sample that is kept.
        position: the next sample to read.
        ended: no audio will be added.
    """

    def __init__(self, frame_bytes: int, max_samples: int, changes: Changes) -> None:
        self.frame_bytes = frame_bytes
        self.max_samples = max_samples
        self.start = self.position = 0
        self.ended = asyncio.Event()
        self._pcm = bytearray()
        self._changes = changes

    @property
    def end(self) -> int:
        """Samples that have ever been added."""
        return self.start + len(self._pcm) // self.frame_bytes

    def put(self, pcm: bytes) -> None:
        """Append a block of whole samples."""
        self._pcm += pcm
        self.release(self.end - self.max_samples)
        self._changes.notify()

    def finish(self) -> None:
        self.ended.set()
        self._changes.notify()

    def release(self, before: int) -> None:
        """Forget the audio before a sample."""
        gone = max(0, before - self.start)
        del self._pcm[: gone * self.frame_bytes]
        self.start += gone

    async def read(self, max_samples: int) -> bytes | None:
        """The next audio; waits for it. None at the end of all.

        Raises:
            ConnectionLostError: that audio has been dropped.
        """
        await self._changes.until(lambda: self.position < self.end or self.ended.is_set())
        if self.position >= self.end:
            return None
        if self.position < self.start:
            dropped = f"sample {self.position} was dropped, {self.start} is the oldest"
            raise ConnectionLostError(f"the service is too slow: {dropped}", retryable=True)
        first = (self.position - self.start) * self.frame_bytes
        pcm = bytes(self._pcm[first : first + max_samples * self.frame_bytes])
        self.position += len(pcm) // self.frame_bytes
        self._changes.notify()
        return pcm
