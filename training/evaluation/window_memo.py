"""A network that caches its windows, so several look-aheads cost as much as one.

Streams of the same audio whose look-aheads differ by whole blocks use the same windows and read
different frames. The rest of the pipeline runs for each of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

import torch
from torch import Tensor

from model.config import ModelConfig
from model.transcriber import FeatureStream
from service.engine.runner import Transcriber

MAX_CACHED_BYTES = 2**30


class WindowMemo:
    """Replaces a transcriber; caches the network's output for each row, up to MAX_CACHED_BYTES (two
    minutes of a recording in blocks of four frames, with all heads). Later windows are computed
    every time."""

    def __init__(self, transcriber: Transcriber) -> None:
        self._transcriber = transcriber
        self._seen: dict[bytes, Tensor] = {}
        self._cached_bytes = 0
        self.computed = 0
        """Windows that were not in the cache."""

    @property
    def config(self) -> ModelConfig:
        """The network's."""
        return self._transcriber.config

    @property
    def card(self) -> Mapping[str, Any]:
        """The network's."""
        return self._transcriber.card

    def open_stream(self) -> FeatureStream:
        """The network's own."""
        return self._transcriber.open_stream()

    def predict_features(self, features: Tensor) -> Tensor:
        """A batch of rows -> (batch, heads, FRAMES, PITCHES), computing what is new."""
        keys = [blake2b(row.numpy().tobytes()).digest() for row in features.cpu()]
        new = {key: row for row, key in enumerate(keys) if key not in self._seen}
        fresh: dict[bytes, Tensor] = {}
        if new:
            found = self._transcriber.predict_features(features[list(new.values())])
            fresh = dict(zip(new, found, strict=True))
            self.computed += len(new)
            if self._cached_bytes + found.nbytes <= MAX_CACHED_BYTES:
                self._seen |= fresh
                self._cached_bytes += found.nbytes
        return torch.stack([fresh[key] if key in fresh else self._seen[key] for key in keys])
