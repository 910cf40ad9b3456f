"""A network that caches its windows, so several look-aheads cost as much as one.

Streams of the same audio whose look-aheads differ by whole blocks use the same windows and read
different frames. The rest of the pipeline runs for each of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from model.config import ModelConfig
from model.transcriber import FeatureStream
from service.engine.runner import Transcriber


class WindowMemo:
    """Replaces a transcriber; caches the network's output for each row."""

    def __init__(self, transcriber: Transcriber) -> None:
        self._transcriber = transcriber
        self._seen: dict[bytes, Tensor] = {}  # about 100 KB per window: at most one recording's
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
        keys = [row.numpy().tobytes() for row in features.cpu()]
        new = {key: row for row, key in enumerate(keys) if key not in self._seen}
        if new:
            found = self._transcriber.predict_features(features[list(new.values())])
            self._seen.update(zip(new, found, strict=True))
            self.computed += len(new)
        return torch.stack([self._seen[key] for key in keys])
