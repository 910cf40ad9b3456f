"""A network that remembers the windows it has seen, so that several look-aheads cost one.

Streams of the same audio whose look-aheads differ by whole blocks ask for the same windows and
read other frames of them. The pipeline around the network runs whole for each of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from model.config import ModelConfig
from service.engine.engine import Transcriber


class WindowMemo:
    """Stands in for a transcriber; its features are the windows themselves."""

    def __init__(self, transcriber: Transcriber) -> None:
        self._transcriber = transcriber
        self._seen: dict[bytes, Tensor] = {}  # about 100 KB a window: one recording's at most
        self.computed = 0
        """Windows that were not answered from memory."""

    @property
    def config(self) -> ModelConfig:
        """The network's."""
        return self._transcriber.config

    @property
    def card(self) -> Mapping[str, Any]:
        """The network's."""
        return self._transcriber.card

    def open_stream(self) -> WindowMemo:
        """Streams need no state of their own."""
        return self

    def advance(self, window: Tensor, new_hops: int) -> Tensor:
        """A copy of the window: (WINDOW,)."""
        return window.clone()

    def predict_features(self, windows: Tensor) -> Tensor:
        """(batch, WINDOW) -> (batch, heads, FRAMES, PITCHES), computing what is new."""
        keys = [window.numpy().tobytes() for window in windows.cpu()]
        new = {key: row for row, key in enumerate(keys) if key not in self._seen}
        if new:
            streams = [self._transcriber.open_stream() for _ in new]
            features = [
                stream.advance(windows[row], len(windows[row]))
                for stream, row in zip(streams, new.values(), strict=True)
            ]
            found = self._transcriber.predict_features(torch.stack(features))
            self._seen.update(zip(new, found, strict=True))
            self.computed += len(new)
        return torch.stack([self._seen[key] for key in keys])
