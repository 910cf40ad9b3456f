"""The shuffle-exchange network as a layer of other models."""

from model import rse
from model.config import RSEConfig


class ResidualShuffleExchange(rse.ResidualShuffleExchange):
    """Mixes a sequence over any distance in O(n log n) (Draguns et al., AAAI 2021).

    Takes (batch, length, dim) and returns the same shape; every output depends on every input.
    Lengths are padded to a power of two inside. The order of the sequence is its only notion of
    position, so no position embedding is needed.
    """

    def __init__(self, dim: int, blocks: int = 2, dropout: float = 0.1) -> None:
        """Args:
            dim: features of an element (m in the paper).
            blocks: Beneš blocks; another switch layer follows the last.
            dropout: divided by log2 of the length, after every switch layer.

        Raises:
            ValueError: a number is out of range.
        """
        super().__init__(RSEConfig(maps=dim, blocks=blocks, dropout=dropout))
