"""Memory that the service and a worker share: segments of recordings and their probabilities."""

from model.config import FRAMES, HOP, PITCHES, WINDOW, ModelConfig
from service.stream.due import SEGMENT_FRAMES

SLOTS = 2
"""Segments that a worker has: one that it computes, one that waits."""


def slot_values(config: ModelConfig) -> tuple[int, int]:
    """float32 values of a slot: a segment's samples, then its probabilities."""
    hops = SEGMENT_FRAMES + config.refill_hops + FRAMES
    return WINDOW + hops * HOP, len(config.outputs) * SEGMENT_FRAMES * PITCHES
