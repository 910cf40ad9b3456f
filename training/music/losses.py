"""The loss of the transcription networks, of all heads at every usable stride-128 position. (The
paper's network has its own, ``training.musicnet.objective``.)"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from model import storage
from model.config import INSTRUMENT_HEADS, WINDOW, ModelConfig
from model.storage import fastest_dtype
from model.validation import Fraction, validated_dataclass
from training.music.targets import Targets


@dataclass(frozen=True)
class HeadWeights:
    """Weights of the heads in the loss."""

    frame: float = 1.0  # That a note sounds
    onset: float = 4.0  # That it begins
    velocity: float = 10.0  # How loud it is; most of this entropy is that of the labels
    offset: float = 1.5  # That it ends
    pedal: float = 1.0  # That the pedal is down
    instrument: float = 1.0  # Who plays it


class ClassShares:
    """Shares of the instrument classes among the notes of about the last hundred batches: within
    one batch the rarest of few classes would weigh most."""

    def __init__(self) -> None:
        self._notes = torch.zeros(len(INSTRUMENT_HEADS))

    def updated(self, notes: Tensor) -> Tensor:
        """Shares, [classes], after a batch with these numbers of notes, [classes]."""
        self._notes = 0.99 * self._notes.to(notes) + notes
        return self._notes / self._notes.sum().clamp(min=1)


def heads_loss(
    logits: Tensor,
    heads: Sequence[str],
    labels: Targets[Tensor],
    frames: slice,
    pitches: slice,
    weights: HeadWeights,
    shares: ClassShares,
) -> tuple[Tensor, dict[str, Tensor]]:
    """Weighted cross-entropy of all heads, most summed over notes and averaged over frames. logits:
    (batch, heads, FRAMES, PITCHES), in the order of ``heads``; only the given frames and pitches
    are used. Velocity and instrument losses are averaged over the notes that begin."""
    cells = (slice(None), frames, pitches)
    rows = logits[:, :, frames, pitches]
    classes = [head for head in heads if head in INSTRUMENT_HEADS]  # they come last
    rows, players = rows.split([len(heads) - len(classes), len(classes)], dim=1)
    begins = labels.onset[cells]
    known = 1 - labels.frame_unknown[cells], 1 - labels.onset_unknown[cells]
    parts: dict[str, Tensor] = {}
    for head, values in zip(heads, rows.float().unbind(1), strict=False):
        match head:
            case "frame" | "offset" | "onset":
                losses = _entropy(values, getattr(labels, head)[cells])
                losses = losses * known[head == "onset"]
                parts[head] = losses.sum() / (losses.shape[0] * losses.shape[1])
            case "velocity":
                velocity = labels.velocity[cells]
                share = begins * (velocity > 0)
                losses = _entropy(values, velocity) * share
                parts[head] = losses.sum() / share.sum().clamp(min=1)
            case "pedal":
                pedal = labels.pedal[:, frames]
                count = pedal <= 1
                losses = _entropy(values[..., 0], pedal.clamp(max=1)) * count
                parts[head] = losses.sum() / count.sum().clamp(min=1)
            case _:
                raise ValueError(f"no loss for the head {head!r}")
    if classes:
        parts["instrument"] = _instrument_loss(players, labels, cells, shares)
    weighted = [getattr(weights, name) * part for name, part in parts.items()]
    return torch.stack(weighted).sum(), parts


def _instrument_loss(
    logits: Tensor, labels: Targets[Tensor], cells: tuple[slice, slice, slice], shares: ClassShares
) -> Tensor:
    """Binary cross-entropy of each class, since several may play a note; summed over classes,
    averaged over notes that begin. logits: (batch, classes, frames, pitches). A note weighs as the
    inverse square root of its class's share: pianos play most notes, and a head that always says so
    would be right too often to learn anything else."""
    instrument = labels.instrument[cells]
    where = (instrument > 0).nonzero(as_tuple=True)
    truth = F.one_hot(instrument[where].long() - 1, logits.shape[1]).float()
    weight = labels.onset[cells][where]
    share = shares.updated(weight @ truth)
    weight = weight * (truth @ share.clamp(min=1e-4).rsqrt())
    found = logits.permute(0, 2, 3, 1)[where].float()  # (notes, classes)
    return (_entropy(found, truth).sum(dim=1) * weight).sum() / weight.sum().clamp(min=1)


def _entropy(logits: Tensor, labels: Tensor) -> Tensor:
    return F.binary_cross_entropy_with_logits(logits, labels, reduction="none")


DISTILLED_HEADS = ("frame", "onset", "velocity", "offset")
"""Heads that learn from the teacher; classes of instruments and the pedal have labels alone."""


@validated_dataclass()
class DistillationConfig:
    """The teacher and how much its predictions count."""

    teacher: str = ""  # A shipped name or a .safetensors file; empty trains on the labels alone
    share: Fraction = 0.7
    """Of the teacher's probabilities in the targets, 0 to 1; the rest are labels."""


class Teacher:
    """A larger network of ours whose predictions become targets of a smaller one. They say more
    than the labels, such as how sure one can be of a note (Hinton et al., 2015). Cross-entropy is
    linear in its target, so the mixture of both losses is the loss of the mixed targets."""

    def __init__(self, config: DistillationConfig, student: ModelConfig) -> None:
        """Raises WeightsError if there are no such weights, ValueError if the teacher hears more
        than the student does."""
        self._share = config.share
        self._network = storage.load(config.teacher, dtype=torch.float32)
        self._device: torch.device | None = None
        theirs = self._network.config
        if theirs.context > student.context or theirs.sample_rate != student.sample_rate:
            name = config.teacher
            raise ValueError(f"teacher {name} hears more than {student.name}, or at another rate")
        self._samples = theirs.context + WINDOW

    def mixed(self, audio: Tensor, labels: Targets[Tensor]) -> Targets[Tensor]:
        """Labels for a batch of windows, (batch, samples), with the teacher's share in them."""
        if self._device != audio.device:
            self._device = audio.device
            self._network.to(audio.device).compute_in(fastest_dtype(audio.device))
        heard = self._network.predict(audio[:, -self._samples :]).float()  # without gradients
        rows = {head: heard[:, row] for row, head in enumerate(self._network.config.heads)}
        targets = {
            name: torch.lerp(getattr(labels, name), rows[name], self._share)
            for name in DISTILLED_HEADS
            if name in rows
        }
        if "velocity" in targets:  # 0 where no note begins or its velocity is unknown
            targets["velocity"] *= labels.velocity > 0
        return labels._replace(**targets)
