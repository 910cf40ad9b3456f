"""The Residual Shuffle-Exchange network: Beneš blocks of switch and shuffle layers.

A Beneš block on n = 2^b elements is (b - 1) x [switch, shuffle], then (b - 1) x [switch, inverse
shuffle]. The layers of each half share one set of weights (paper, figure 2). One more switch layer
follows the last block. In total there are 2 * blocks * (b - 1) + 1 switch layers: O(n log n) work.

With gated units, this is the original Shuffle-Exchange network.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from model.config import RSEConfig
from model.gated import GatedBenesBlock, GatedSwitchUnit
from model.switch import ResidualSwitchUnit, depth_scaled, shuffles


class BenesBlock(nn.Module):
    """One Beneš block. Its output is in the order of its input."""

    def __init__(self, config: RSEConfig) -> None:
        super().__init__()
        self.forward_switch = ResidualSwitchUnit(config)
        self.reverse_switch = ResidualSwitchUnit(config)
        self.shuffles = shuffles(config)
        self.dropout = config.dropout

    def forward(self, x: Tensor) -> Tensor:
        """Map (batch, n, m), where n is a power of two, to the same shape."""
        bits = x.shape[1].bit_length() - 1
        rate = depth_scaled(self.dropout, bits)
        units = self.forward_switch, self.reverse_switch
        for unit, shuffle in zip(units, self.shuffles, strict=True):
            for _ in range(bits - 1):
                x = shuffle(F.dropout(unit(x), rate, self.training))
        return x


def padded_length(length: int) -> int:
    """Return the power of two, at least 2, to which a sequence of this length is padded. Raises
    ValueError for an empty sequence."""
    if length == 0:
        raise ValueError("a shuffle-exchange network needs at least one element")
    return 1 << max(1, (length - 1).bit_length())


class ResidualShuffleExchange(nn.Module):
    """Beneš blocks and the final switch layer. Zeros pad sequences to a power of two."""

    def __init__(self, config: RSEConfig) -> None:
        super().__init__()
        self.gated = config.unit == "gated"
        if self.gated:
            self.blocks = nn.ModuleList(
                GatedBenesBlock(config, k == 0) for k in range(config.blocks)
            )
            self.last: nn.Module = GatedSwitchUnit(config)
        else:
            self.blocks = nn.ModuleList(BenesBlock(config) for _ in range(config.blocks))
            self.last = ResidualSwitchUnit(config)
        self.dropout = config.dropout

    def forward(self, x: Tensor) -> Tensor:
        """Map (batch, length, m) to the same shape. Raises ValueError for an empty sequence, for
        another number of axes, and in ``torch.jit.trace``."""
        if x.ndim != 3:
            shape = tuple(x.shape)
            raise ValueError(f"expected (batch, length, m), not {shape}; add a batch axis: x[None]")
        if torch.jit.is_tracing():  # type: ignore[attr-defined]
            raise ValueError("torch.jit.trace is not supported; use torch.export or torch.compile")
        length = x.shape[1]
        x = F.pad(x, (0, 0, 0, padded_length(length) - length))  # (batch, n, m)
        before: list[Tensor] | None = None
        for block in self.blocks:
            if self.gated:
                x, before = block(x, before)
            else:
                x = block(x)
        rate = depth_scaled(self.dropout, x.shape[1].bit_length() - 1)
        return F.dropout(self.last(x), rate, self.training)[:, :length]
