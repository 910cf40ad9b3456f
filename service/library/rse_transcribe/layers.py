"""The shuffle-exchange network as a layer of other models; model/LAYER.md has an example."""

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from model import rse
from model.config import RSEConfig


class ResidualShuffleExchange(rse.ResidualShuffleExchange):
    """Mixes a sequence over any distance in O(n log n) (Draguns et al., AAAI 2021).

    Takes (batch, length, dim) of any length and returns the same shape; every output depends on
    every input. The order of the sequence is its only notion of position, so no position embedding
    is needed. Inputs of amplitude 0.25 are what the initial weights preserve.
    """

    def __init__(
        self,
        dim: int,
        blocks: int = 2,
        hidden: int = 2,
        norm: Literal["feature", "sequence", "none"] = "feature",
        activation: Literal["gelu", "sigmoid_gelu", "relu"] = "gelu",
        dropout: float = 0.1,
        unit: Literal["residual", "gated"] = "residual",
    ) -> None:
        """Args:
            dim: features of an element (m in the paper).
            blocks: Beneš blocks; another switch layer follows the last.
            hidden: width of a switch unit's hidden layer, as a multiple of its input (2 dim).
            norm: over features (the paper's LayerNorm), over the sequence, padding included (the
                authors' code), or none.
            activation: after the norm: GELU, x sigma(1.702 x) (the authors' code) or ReLU.
            dropout: divided by log2 of the length, after every switch layer.
            unit: the paper's, or the gated one of the original Shuffle-Exchange network, which
                has no hidden, norm and activation.

        Raises:
            ValueError: an argument is out of range.
        """
        try:
            config = RSEConfig(
                maps=dim,
                blocks=blocks,
                hidden_factor=hidden,
                norm=norm,
                activation=activation,
                dropout=dropout,
                unit=unit,
            )
        except ValueError as error:
            field, space, what = str(error).partition(" ")
            names = {"maps": "dim", "hidden_factor": "hidden"}
            raise ValueError(f"{names.get(field, field)}{space}{what}") from None
        super().__init__(config)
        self.dim = dim

    def forward(self, x: Tensor, lengths: Tensor | Sequence[int] | None = None) -> Tensor:
        """(batch, length, dim) -> the same shape.

        Padding has no influence: it enters as zeros and comes out as zeros. A sequence in a batch
        is computed as it would be alone if both are padded to the same power of two.

        Args:
            x: floats; any length from 1. Inside, zeros pad it to a power of two.
            lengths: (batch,) integers, 0 to length; elements from there on are padding. None: there
                is none.

        Raises:
            ValueError: a shape does not fit ``dim`` or ``x``.
        """
        if x.ndim != 3 or x.shape[2] != self.dim:
            shape = tuple(x.shape)
            raise ValueError(f"expected (batch, length, dim) with dim = {self.dim}, got {shape}")
        if lengths is None:
            return super().forward(x)
        lengths = torch.as_tensor(lengths)
        if lengths.shape != x.shape[:1]:
            raise ValueError(f"expected lengths of shape ({len(x)},), got {tuple(lengths.shape)}")
        here = torch.arange(x.shape[1], device=x.device) < lengths.to(x.device)[:, None]
        padding = ~here[..., None]
        return super().forward(x.masked_fill(padding, 0)).masked_fill(padding, 0)
