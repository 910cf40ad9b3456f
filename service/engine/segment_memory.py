"""Shared memory in which a worker returns the probabilities of segments to the service.

A minute of audio has 64 MB of probabilities with the 24 outputs of `live`. Through sockets, the
transcription of recordings took a fifth to a third longer.
"""

import math
import mmap
import os
import tempfile
from contextlib import suppress
from typing import IO

import numpy as np

from model.config import FRAMES, PITCHES, ModelConfig
from service.stream.windows import SEGMENT_FRAMES, PendingWindows, Probabilities

SLOTS = 2  # maximum number of segments at a worker: one is computed, and one waits


def create_file() -> IO[bytes]:
    """Create the file to be mapped. It has no name, and is in memory if the system allows this."""
    with suppress(AttributeError, OSError):
        return open(os.memfd_create("segments"), "r+b")
    return tempfile.TemporaryFile()


class SegmentMemory:
    """Memory with one slot for each segment in flight."""

    def __init__(self, file: int, config: ModelConfig) -> None:
        """Map a file. It may be closed afterwards.

        Args:
            file: file descriptor, the same or a duplicate in the service and in the worker.
            config: configuration of the model that computes the segments.
        """
        self._outputs = len(config.outputs)
        shape = SLOTS, SEGMENT_FRAMES * self._outputs * PITCHES
        size = math.prod(shape) * np.float32().itemsize
        os.ftruncate(file, size)
        self._slots = np.frombuffer(mmap.mmap(file, size), np.float32).reshape(shape)

    def probabilities(self, slot: int, due: PendingWindows) -> Probabilities:
        """Return the view of a slot that holds the probabilities of ``due``."""
        shape = due.windows, self._outputs, len(range(FRAMES)[due.positions]), PITCHES
        return self._slots[slot, : math.prod(shape)].reshape(shape)
