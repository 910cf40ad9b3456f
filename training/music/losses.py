"""Losses of the transcription networks.

``heads_loss`` trains frame, onset and velocity heads at every usable stride-128 position;
``released_loss`` is the objective of the authors' released code for the frame head alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from model.config import CENTRE_FRAME, FRAMES, LOGIT_OFFSET


@dataclass(frozen=True)
class Labels:
    """What sounds at each frame of a batch of windows, each (batch, FRAMES, PITCHES) float."""

    frame: Tensor
    """1 where a note sounds."""
    onset: Tensor
    """A triangle of three hops around each onset."""
    velocity: Tensor
    """Velocity / 127 of the note beginning there, where ``onset`` is positive."""
    offset: Tensor
    """A triangle of three hops around each end of a note."""


@dataclass(frozen=True)
class HeadWeights:
    """Shares of the heads in the loss."""

    frame: float = 1.0
    """That a note sounds."""
    onset: float = 2.0
    """That it begins."""
    velocity: float = 0.5
    """How loud it is."""
    offset: float = 1.0
    """That it ends."""


def heads_loss(
    logits: Tensor,
    heads: Sequence[str],
    labels: Labels,
    frames: slice,
    pitches: slice,
    weights: HeadWeights,
) -> tuple[Tensor, dict[str, Tensor]]:
    """Cross-entropy of every head, summed over notes, averaged over frames.

    logits: (batch, heads, FRAMES, PITCHES), the heads as ``heads`` names them; only the given
    frames and pitches count. The velocity head counts where notes begin.
    """
    parts = {}
    for head, values in zip(heads, logits[:, :, frames, pitches].float().unbind(1), strict=True):
        losses = _entropy(values, getattr(labels, head)[:, frames, pitches])
        if head == "velocity":
            begins = labels.onset[:, frames, pitches]
            parts[head] = (losses * begins).sum() / begins.sum().clamp(min=1)
        else:
            parts[head] = losses.sum() / (losses.shape[0] * losses.shape[1])
    total = sum(
        (getattr(weights, name) * part for name, part in parts.items()), logits.new_zeros(())
    )
    return total, parts


def released_loss(
    logits: Tensor,
    raw: Tensor,
    scale: Tensor,
    offset: Tensor,
    frame: Tensor,
    smoothing: float = 0.01,
) -> tuple[Tensor, dict[str, Tensor]]:
    """The released code's MusicNet objective (paper, appendix "MusicNet training details").

    logits: (batch, frames, PITCHES) with the logit offset; raw: (batch, positions, PITCHES)
    network output without it; frame: labels like logits. The middle frame counts by itself and
    again among the regular intervals; all positions are pulled lightly towards silence; the
    calibration is trained on the middle frame without touching the network.
    """
    middle = CENTRE_FRAME if logits.shape[1] == FRAMES else logits.shape[1] // 2
    others_smoothing = (smoothing + 0.1) / 2
    quiet = torch.full_like(raw, others_smoothing / 2)
    calibrated = logits[:, middle].detach() * scale + offset
    parts = {
        "middle": _smoothed(logits[:, middle], frame[:, middle], smoothing),
        "regular": 2 * _smoothed(logits, frame, smoothing),
        "others": 0.01 * _entropy(raw + LOGIT_OFFSET, quiet).mean(),
        "calibration": 0.1 * _entropy(calibrated, frame[:, middle]).mean(),
    }
    return sum(parts.values(), logits.new_zeros(())), parts


def _smoothed(logits: Tensor, labels: Tensor, smoothing: float) -> Tensor:
    return _entropy(logits, labels * (1 - smoothing) + smoothing / 2).mean()


def _entropy(logits: Tensor, labels: Tensor) -> Tensor:
    return F.binary_cross_entropy_with_logits(logits, labels, reduction="none")
