"""The gated Switch Unit of the original Shuffle-Exchange network, the baseline of the paper.

For a pair of neighbours s = [s1, s2] (2m features; paper, section "Neural Shuffle-Exchange
networks")::

    r1, r2 = sigma(Wr1 s + Br1), sigma(Wr2 s + Br2)        reset gates
    c1, c2 = tanh(Wc1 (r1 * s) + Bc1), tanh(Wc2 (r2 * s) + Bc2)
    u      = sigma(Wu s + Bu)                              update gate
    [o1, o2] = u * swapHalf(s1, s2) + (1 - u) * [c1, c2]

swapHalf keeps the first half of each element's features and takes the second half from its
neighbour, so a unit with u = 1 still mixes. Unlike the residual unit, this one needs skip
connections: in all Beneš blocks except the first, gates and candidates use s + D * p, where p is
the output of the same layer in the previous block and D is a learned vector.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from model.config import RSEConfig
from model.switch import depth_scaled, shuffles

GATE_BIAS = 0.5  # released code: gates are 62 % open at first
SKIP_SCALE = 0.5  # released code: initial D; in use, D is clamped to 0 ... 1


class GatedSwitchUnit(nn.Module):
    """One switch layer: the same gated unit on every pair of neighbours."""

    def __init__(self, config: RSEConfig, skip: bool = False) -> None:
        """skip: True if the unit uses the previous block's output (D exists)."""
        super().__init__()
        pair = 2 * config.maps
        self.gates = nn.Linear(pair, 3 * pair)  # reset gates r1 and r2, update gate u
        self.candidate1 = nn.Linear(pair, config.maps)
        self.candidate2 = nn.Linear(pair, config.maps)
        self.skip_scale = nn.Parameter(torch.full((config.maps,), SKIP_SCALE)) if skip else None
        for gate in self.gates.weight.detach().chunk(3):  # three separate matrices
            nn.init.xavier_uniform_(gate)
        nn.init.constant_(self.gates.bias, GATE_BIAS)
        for candidate in (self.candidate1, self.candidate2):
            nn.init.xavier_uniform_(candidate.weight)
            nn.init.zeros_(candidate.bias)

    def forward(self, x: Tensor, before: Tensor | None = None) -> Tensor:
        """Map x, (batch, n, m) with even n, to the same shape. before: output of the same layer in
        the previous block, which only units with ``skip`` use."""
        batch, n, maps = x.shape
        inputs = x
        if self.skip_scale is not None and before is not None:
            inputs = x + self.skip_scale.clamp(0, 1) * before
        s = inputs.reshape(batch, n // 2, 2 * maps)
        reset1, reset2, update = torch.sigmoid(self.gates(s)).chunk(3, dim=-1)
        candidates = torch.cat([self.candidate1(reset1 * s), self.candidate2(reset2 * s)], dim=-1)
        out = update * swap_half(x) + (1 - update) * torch.tanh(candidates)  # (batch, n/2, 2m)
        return out.view(batch, n, maps)


def swap_half(x: Tensor) -> Tensor:
    """Map (batch, n, m) to pairs, (batch, n/2, 2m), with swapped second halves of the features."""
    batch, n, maps = x.shape
    pairs = x.reshape(batch, n // 2, 2, maps)
    first, second = pairs.split([maps // 2, maps - maps // 2], dim=-1)
    return torch.cat([first, second.flip(2)], dim=-1).flatten(2)


class GatedBenesBlock(nn.Module):
    """A Beneš block of gated units. It also returns its layers' outputs, for the next block."""

    def __init__(self, config: RSEConfig, first: bool) -> None:
        super().__init__()
        self.forward_switch = GatedSwitchUnit(config, skip=not first)
        self.reverse_switch = GatedSwitchUnit(config, skip=not first)
        self.shuffle, self.unshuffle = shuffles(config)
        self.dropout = config.dropout

    def forward(self, x: Tensor, before: list[Tensor] | None) -> tuple[Tensor, list[Tensor]]:
        """Return the block's output, (batch, n, m), and the outputs of its layers.

        Args:
            x: (batch, n, m), where n is a power of two.
            before: outputs of the previous block's layers; None in the first block.
        """
        layers = x.shape[1].bit_length() - 2  # in each half
        rate = depth_scaled(self.dropout, layers + 1)
        outputs: list[Tensor] = []
        for layer in range(2 * layers):
            is_forward = layer < layers
            unit = self.forward_switch if is_forward else self.reverse_switch
            previous = None if before is None else before[layer]
            x = F.dropout(unit(x, previous), rate, self.training)
            outputs.append(x)
            x = self.shuffle(x) if is_forward else self.unshuffle(x)
        return x, outputs
