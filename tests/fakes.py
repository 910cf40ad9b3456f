"""Fake model that detects four pure tones exactly. It has the interface of a transcriber.

The features of a frame depend only on the 256 samples around it and are computed separately for
each window. Equal windows therefore have equal bits in any batch. Different windows give a frame
the same features, except for rounding.
"""

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from model.config import (
    FRAMES,
    HOP,
    PITCHES,
    SAMPLE_RATE,
    WINDOW,
    FilterbankConfig,
    ModelConfig,
    StridedConfig,
)

FAKE_PITCHES = (57, 69, 81, 93)  # A3 to A6; 256 samples can distinguish octaves.
FAKE_RATE_HZ = SAMPLE_RATE
_SPAN = 2 * HOP
LOUDNESS = {"piano": 1.0, "violin": 0.85, "viola": 0.7, "cello": 0.55}
"""Frame probability at which the probability of an instrument is highest."""


def tone_hz(pitch: float) -> float:
    return 440.0 * 2 ** ((pitch - 69) / 12)


def play(
    notes: Sequence[tuple[float, float, float]], duration_s: float, rate_hz: int, level: float = 0.2
) -> NDArray[np.float32]:
    """Return tones (pitch, onset_s, offset_s) with ramps of 2 ms, float32 [n]."""
    time_s = np.arange(round(duration_s * rate_hz)) / rate_hz
    out = np.zeros(len(time_s))
    for pitch, onset_s, offset_s in notes:
        sounding = slice(*np.searchsorted(time_s, [onset_s, offset_s]))
        at_s = time_s[sounding]
        envelope = np.clip(np.minimum(at_s - onset_s, offset_s - at_s) / 0.002, 0, 1)
        out[sounding] += level * envelope * np.sin(2 * np.pi * tone_hz(pitch) * at_s)
    return out.astype(np.float32)


class FakeStream:
    def __init__(self, kernels: Tensor) -> None:
        self._kernels = kernels

    def advance(self, window: Tensor, new_hops: int, shift: int = 0) -> Tensor:
        """Map (WINDOW,) to amplitudes, (FRAMES, tones)."""
        if bool((window == FakeTranscriber.POISON).any()):
            raise RuntimeError("poisoned window")
        # The last bits of a sum depend on its position in memory. The conversion to float32 drops
        # them.
        spans = window.double().unfold(0, _SPAN, HOP)  # (FRAMES, 256), about each frame's sample
        parts = (spans @ self._kernels).unflatten(1, (2, -1))
        return torch.linalg.vector_norm(parts, dim=1).float()


class FakeTranscriber:
    """Deterministic replacement of ``model.transcriber.TranscriptionModel``."""

    POISON = 0.96875  # The front end raises an error if a sample has this value.

    def __init__(
        self,
        heads: tuple[str, ...] = ("frame", "onset", "velocity"),
        front_end: StridedConfig | FilterbankConfig | None = None,
    ) -> None:
        """``front_end`` is in the configuration, but the model does not use it. With a filterbank,
        streams track the tuning."""
        self.config = ModelConfig(
            "fake", FAKE_RATE_HZ, front_end=front_end or StridedConfig(), heads=heads
        )
        self.card: dict[str, Any] = {}
        time_s = (torch.arange(_SPAN, dtype=torch.float64) - HOP) / FAKE_RATE_HZ
        phase = 2 * torch.pi * time_s[:, None] * torch.tensor([tone_hz(p) for p in FAKE_PITCHES])
        shape = torch.hann_window(_SPAN, periodic=False, dtype=torch.float64)
        waves = torch.cat([phase.cos(), phase.sin()], dim=1) * shape[:, None]
        self._kernels = 2 * waves / shape.sum()  # a sine's amplitude

    def open_stream(self) -> FakeStream:
        return FakeStream(self._kernels)

    def predict(self, windows: Tensor) -> Tensor:
        """Map (batch, WINDOW) to probabilities, (batch, heads, FRAMES, PITCHES)."""
        assert windows.shape[1] == WINDOW
        return self.predict_features(
            torch.stack([self.open_stream().advance(window, 0) for window in windows])
        )

    def predict_features(self, features: Tensor) -> Tensor:
        frame = (features * 5).clamp(0, 1)  # probability 1 at an amplitude of 0.2
        rise = torch.zeros_like(features)
        rise[:, 1:] = (features[:, 1:] - features[:, :-1]).clamp(min=0)
        onset = (rise * 10).clamp(0, 1)
        heads = {"frame": frame, "onset": onset, "velocity": frame * 0.8}
        out = torch.zeros(len(features), len(self.config.outputs), FRAMES, PITCHES)
        for row, head in enumerate(self.config.heads):
            if head in heads:
                out[:, row, :, list(FAKE_PITCHES)] = heads[head]
            elif head == "pedal":  # pressed while the lowest tone sounds
                out[:, row] = frame[..., :1]
            else:  # The loudness of a tone determines the probability of its instrument.
                nearness = (frame - LOUDNESS.get(head.removeprefix("instrument:"), 9.0)).abs()
                out[:, row, :, list(FAKE_PITCHES)] = (1 - 4 * nearness).clamp(0, 1)
        return out


class GatedTranscriber(FakeTranscriber):
    """Model that blocks within a batch until the gate opens."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()
        self.entered = threading.Event()

    def close_gate(self) -> None:
        """Block the next batch."""
        self.entered.clear()
        self.gate.clear()

    def predict_features(self, features: Tensor) -> Tensor:
        self.entered.set()
        assert self.gate.wait(60)
        return super().predict_features(features)
