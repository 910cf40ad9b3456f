"""Distillation: a smaller network learns from the labels and from what a larger one of ours hears.

The teacher's probabilities of a cell say more than its label: how sure one can be of a note, and
what its overtones look like (Hinton et al., 2015). Cross-entropy is linear in its target, so the
mixture of both losses is the loss of the mixed targets.
"""

import torch
from torch import Tensor

from model import storage
from model.config import WINDOW, ModelConfig
from model.ranges import Fraction, checked
from model.storage import fastest_dtype
from training.music.targets import Targets

TAUGHT = ("frame", "onset", "velocity", "offset")
"""Heads that learn from the teacher; classes of instruments and the pedal have labels alone."""


@checked()
class DistillationConfig:
    """The teacher and how much its predictions count."""

    teacher: str = ""
    """A shipped name or a .safetensors file; empty trains on the labels alone."""
    share: Fraction = 0.7
    """Of the teacher's probabilities in the targets, 0 to 1; the rest are labels."""


class Teacher:
    """A network of ours whose predictions become targets."""

    def __init__(self, config: DistillationConfig, student: ModelConfig) -> None:
        """Raises WeightsError if there are no such weights, ValueError if the teacher hears more
        than the student does."""
        self._share = config.share
        self._network = storage.load(config.teacher, dtype=torch.float32)
        self._device: torch.device | None = None
        theirs = self._network.config
        if theirs.context > student.context or theirs.sample_rate != student.sample_rate:
            raise ValueError(
                f"teacher {config.teacher} hears more than {student.name}, or at another rate"
            )
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
            for name in TAUGHT
            if name in rows
        }
        if "velocity" in targets:  # 0 where no note begins or its velocity is unknown
            targets["velocity"] *= labels.velocity > 0
        return labels._replace(**targets)
