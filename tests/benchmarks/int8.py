"""Switch units in int8, tried beside bfloat16: not what the service runs.

Weights by channel, inputs by the range that they happen to have: so a window's numbers depend on
the windows that it is computed with, which ``CrewRunner`` finds out, and computes each alone.
"""

from __future__ import annotations

from typing import Any
from unittest import mock

import torch
from torch import Tensor

from model.fast.network import FastNetwork, fast_network
from model.fast.switch import FastSwitch
from model.switch import ResidualSwitchUnit, activate
from model.transcriber import TranscriptionModel

LARGEST = 127


class Int8Switch(FastSwitch):
    """A residual switch unit whose two products take int8."""

    def __init__(self, unit: ResidualSwitchUnit, dtype: torch.dtype) -> None:
        super().__init__(unit, torch.float32)
        self.packed_z = packed(self.z, None)
        self.packed_w = packed(self.w, self.b)

    def _compute(self, pairs: Tensor, place: Tensor) -> None:
        multiply = torch.ops.quantized.linear_dynamic
        rows = pairs.flatten(1, -3).flatten(2)
        hidden = activate(self.activation, self.norm(multiply(rows, self.packed_z)))
        update = multiply(hidden, self.packed_w)
        torch.addcmul(update.view(pairs.shape), pairs, self.residual, out=place)


def packed(weight: Tensor, bias: Tensor | None) -> Any:
    """A linear layer's weights as the int8 product wants them, each output with its own scale."""
    scales = weight.abs().amax(dim=1).double() / LARGEST
    zeros = torch.zeros(len(weight), dtype=torch.long)
    rounded = torch.quantize_per_channel(weight, scales, zeros, 0, torch.qint8)
    return torch.ops.quantized.linear_prepack(rounded, bias)


def int8_network(transcriber: TranscriptionModel) -> FastNetwork:
    """The fast arrangement of a float32 transcriber with its switch units in int8."""
    with mock.patch("model.fast.shuffle_exchange.fast_switch", Int8Switch):
        fast = fast_network(transcriber)
    assert fast is not None
    return fast
