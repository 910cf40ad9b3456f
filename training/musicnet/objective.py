"""The objective of the paper's MusicNet network (appendix "MusicNet training details").

The paper describes two terms: the middle frame of the window, and all frames at stride 128. The
authors' released code adds the other terms.
"""

from torch import Tensor
from torch.nn import functional as F

from model.config import LOGIT_OFFSET
from model.validation import Fraction, NonNegative, validated_dataclass

OTHERS_SMOOTHING = 0.1  # label smoothing of the term `others`, in addition to `smoothing`


@validated_dataclass()
class FrameTerms:
    """Weights of the terms (0 omits a term), and the label smoothing."""

    middle: NonNegative = 1.0  # The middle frame, which the evaluation uses
    regular: NonNegative = 2.0
    """The mean over all frames at stride 128, including the middle frame. In the paper, this term
    increases the average precision from 76.84 % to 78.02 %."""
    others: NonNegative = 0.01  # All positions, with silence as target (released code only)
    calibration: NonNegative = 0.1
    """The calibrated middle frame. This term trains only the scale and offset of each note
    (released code only)."""
    smoothing: Fraction = 0.01  # Smoothing of the labels (released code only)


TEXT_TERMS = FrameTerms(others=0.0, calibration=0.0, smoothing=0.0)
"""Terms of the paper's text, which does not state the weight of the regular frames."""


def frame_loss(
    logits: Tensor, raw: Tensor, calibrated: Tensor, labels: Tensor, terms: FrameTerms
) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the weighted sum of the terms, and each weighted term.

    Args:
        logits: (batch, frames, PITCHES), with the logit offset. The number of frames is odd.
        raw: output of the network without the logit offset, (batch, positions, PITCHES).
        calibrated: calibrated logits of the middle frame, detached, (batch, PITCHES).
        labels: (batch, frames, PITCHES).
    """
    middle = logits.shape[1] // 2
    smoothed = labels * (1 - terms.smoothing) + terms.smoothing / 2
    silent = (terms.smoothing + OTHERS_SMOOTHING) / 4  # target of the term `others`
    entropies = {
        "middle": lambda: _entropy(logits[:, middle], smoothed[:, middle]),
        "regular": lambda: _entropy(logits, smoothed),
        "others": lambda: _entropy(raw + LOGIT_OFFSET, raw.new_full((), silent).expand_as(raw)),
        "calibration": lambda: _entropy(calibrated, labels[:, middle]),
    }
    parts = {
        name: getattr(terms, name) * entropy()
        for name, entropy in entropies.items()
        if getattr(terms, name)
    }
    return sum(parts.values(), logits.new_zeros(())), parts


def _entropy(logits: Tensor, labels: Tensor) -> Tensor:
    return F.binary_cross_entropy_with_logits(logits, labels)
