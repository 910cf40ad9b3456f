"""Loss of networks with several heads, and distillation from a larger network. The loss of the
paper's network is in ``training.musicnet.objective``."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from model import storage
from model.config import (
    CENTRE_FRAME,
    FRAMES,
    HOP,
    INSTRUMENT_HEADS,
    WINDOW,
    FilterbankConfig,
    ModelConfig,
)
from model.storage import fastest_dtype
from model.validation import Fraction, NonNegative, validated_dataclass
from training.music.targets import Targets

FARTHEST_HOPS = 48  # maximum look-ahead of a frame in the loss


def usable_frames(model: ModelConfig) -> slice:
    """Return the frames of a window to use in the loss: all frames that the network predicts. With
    a filterbank, only frames with complete filters, at most FARTHEST_HOPS from the end."""
    if not isinstance(model.front_end, FilterbankConfig):
        outside = CENTRE_FRAME - (model.front_end.window // HOP - 1) // 2
        return slice(outside, FRAMES - outside)
    return slice(FRAMES - FARTHEST_HOPS, FRAMES + 1 - model.front_end.lookahead // HOP)


@validated_dataclass()
class HeadWeights:
    """Weights of the heads in the loss."""

    frame: NonNegative = 1.0  # A note sounds
    onset: NonNegative = 4.0  # A note starts
    velocity: NonNegative = 10.0
    """Velocity of the note. Most of this loss is the entropy of the labels."""
    offset: NonNegative = 1.5  # A note ends
    pedal: NonNegative = 1.0  # The pedal is down
    instrument: NonNegative = 1.0  # Instrument of the note


class ClassShares(nn.Module):
    """Share of each instrument class in the notes of roughly the last 100 batches. If only one
    batch were counted, a class that is rare in this batch would get too much weight."""

    notes: Tensor  # [classes], counts that decay

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("notes", torch.zeros(len(INSTRUMENT_HEADS)))

    def updated(self, notes: Tensor) -> Tensor:
        """Add a batch's note counts, [classes], and return the new shares, [classes]."""
        self.notes = 0.99 * self.notes.to(notes.device) + notes
        return self.notes / self.notes.sum().clamp(min=1)


def heads_loss(
    logits: Tensor,
    heads: Sequence[str],
    labels: Targets[Tensor],
    frames: slice,
    pitches: slice,
    weights: HeadWeights,
    shares: ClassShares,
) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the weighted sum of the heads' cross-entropies, and each cross-entropy by head. Frame,
    onset and offset losses are summed over pitches and averaged over frames. Velocity and
    instrument losses are averaged over onsets. The pedal loss is averaged over frames.

    Args:
        logits: (batch, heads, FRAMES, PITCHES), in the order of ``heads``.
        frames: the frames to use.
        pitches: the pitches to use.
        shares: shares of the instrument classes. The function adds this batch to them.
    """
    cells = (slice(None), frames, pitches)
    rows = logits[:, :, frames, pitches]
    classes = [head for head in heads if head in INSTRUMENT_HEADS]  # instrument heads come last
    rows, instrument_rows = rows.split([len(heads) - len(classes), len(classes)], dim=1)
    onsets = labels.onset[cells]
    parts: dict[str, Tensor] = {}
    for head, values in zip(heads, rows.float().unbind(1), strict=False):
        match head:
            case "frame" | "offset" | "onset":
                unknown = labels.onset_unknown if head == "onset" else labels.frame_unknown
                losses = _entropy(values, getattr(labels, head)[cells]) * (1 - unknown[cells])
                parts[head] = losses.sum() / (losses.shape[0] * losses.shape[1])
            case "velocity":
                velocity = labels.velocity[cells]
                weight = onsets * (velocity > 0)
                losses = _entropy(values, velocity) * weight
                parts[head] = losses.sum() / weight.sum().clamp(min=1)
            case "pedal":
                pedal = labels.pedal[:, frames]
                has_pedal = pedal <= 1
                losses = _entropy(values[..., 0], pedal.clamp(max=1)) * has_pedal
                parts[head] = losses.sum() / has_pedal.sum().clamp(min=1)
            case _:
                raise ValueError(f"no loss for the head {head!r}")
    if classes:
        parts["instrument"] = _instrument_loss(instrument_rows, labels, cells, shares)
    weighted = [getattr(weights, name) * part for name, part in parts.items()]
    return torch.stack(weighted).sum(), parts


def _instrument_loss(
    logits: Tensor, labels: Targets[Tensor], cells: tuple[slice, slice, slice], shares: ClassShares
) -> Tensor:
    """Return the binary cross-entropies of the classes, summed over classes and averaged over
    onsets. Each class has its own probability, because several instruments may play the same note.
    A note's weight is the inverse square root of its class's share. Without weights, the heads
    would learn to predict only the most frequent class, the piano.
    logits: (batch, classes, frames, pitches)."""
    instrument = labels.instrument[cells]
    where = (instrument > 0).nonzero(as_tuple=True)
    number = instrument[where].long() - 1
    truth = F.one_hot(number, logits.shape[1]).float()
    weight = labels.onset[cells][where]
    # Training would autocast matrix products to bfloat16, in which large counts cannot grow.
    share = shares.updated((weight[:, None] * truth).sum(dim=0))
    weight = weight * share.clamp(min=1e-4).rsqrt()[number]
    predicted = logits.permute(0, 2, 3, 1)[where].float()  # (notes, classes)
    return (_entropy(predicted, truth).sum(dim=1) * weight).sum() / weight.sum().clamp(min=1)


def _entropy(logits: Tensor, labels: Tensor) -> Tensor:
    return F.binary_cross_entropy_with_logits(logits, labels, reduction="none")


DISTILLED_HEADS = ("frame", "onset", "velocity", "offset")
"""Heads whose labels ``Teacher.mixed`` mixes with predictions. Other heads keep their labels."""


@validated_dataclass()
class DistillationConfig:
    """The teacher and the weight of its predictions."""

    teacher: str = ""  # Name of shipped weights, or a .safetensors file; empty: only labels
    share: Fraction = 0.7
    """Share of the teacher's probabilities in the targets, 0 to 1; the rest are labels."""


MIN_ONSET = 0.3  # onset probability above which a predicted note gets an instrument


class Teacher:
    """A larger network whose predictions become targets of a smaller network. Predictions contain
    more information than labels, such as how uncertain a note is (Hinton et al., 2015). Mixing
    targets has the effect of mixing losses, because cross-entropy is linear in its target."""

    def __init__(self, config: DistillationConfig, student: ModelConfig) -> None:
        """Load the teacher. Raises WeightsError if the weights cannot be loaded, and ValueError if
        the teacher needs more context than the student, or another sample rate."""
        self._share = config.share
        self._network = storage.load(config.teacher, dtype=torch.float32)
        self.sources: dict[str, Any] = self._network.card.get("sources", {})  # sources of its data
        self._device: torch.device | None = None
        teacher = self._network.config
        if teacher.context > student.context or teacher.sample_rate != student.sample_rate:
            needs = f"needs more context than {student.name}, or another sample rate"
            raise ValueError(f"teacher {config.teacher} {needs}")
        self._samples = teacher.context + WINDOW
        self._stop = usable_frames(teacher).stop  # the teacher was not trained on later frames

    def mixed(self, audio: Tensor, labels: Targets[Tensor]) -> Targets[Tensor]:
        """Mix the teacher's predictions for windows, (batch, samples), into their labels. Frames
        that the teacher cannot predict, because its look-ahead is longer, keep their labels."""
        rows = self._predictions(audio)
        targets = {
            name: torch.lerp(getattr(labels, name), rows[name], self._share)
            for name in DISTILLED_HEADS
            if name in rows
        }
        if "velocity" in targets:  # 0 where no note starts or the velocity is unknown
            targets["velocity"] *= labels.velocity > 0
        for name, target in targets.items():
            target[:, self._stop :] = getattr(labels, name)[:, self._stop :]
        return labels._replace(**targets)

    def replaced(self, audio: Tensor, labels: Targets[Tensor]) -> Targets[Tensor]:
        """Replace all labels of windows, (batch, samples), by the teacher's predictions. A note
        gets the most probable instrument at its onset. Frames that the teacher cannot predict are
        unknown."""
        rows = self._predictions(audio)
        new = {name: rows[name] for name in DISTILLED_HEADS if name in rows}
        if "pedal" in rows:
            new["pedal"] = rows["pedal"].amax(dim=2)  # equal at all pitches of the piano
        classes = [rows[head] for head in INSTRUMENT_HEADS if head in rows]
        if classes:
            best = torch.stack(classes).argmax(dim=0).float() + 1
            new["instrument"] = best * (rows["onset"] > MIN_ONSET)
            new["instrument"][:, self._stop :] = 0
        unknown = torch.zeros_like(labels.frame_unknown)
        unknown[:, self._stop :] = 1
        return labels._replace(frame_unknown=unknown, onset_unknown=unknown, **new)

    def _predictions(self, audio: Tensor) -> dict[str, Tensor]:
        """Return probabilities, (batch, FRAMES, PITCHES), by head, without gradients."""
        if self._device != audio.device:
            self._device = audio.device
            self._network.to(audio.device).compute_in(fastest_dtype(audio.device))
        predicted = self._network.predict(audio[:, -self._samples :]).float()
        return {head: predicted[:, row] for row, head in enumerate(self._network.config.heads)}
