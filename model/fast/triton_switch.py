"""The Residual Switch Unit as one GPU kernel that reads and writes the sequence once.

A program takes some pairs through the whole unit: both matrix products, norm, activation,
residual, and storing every element at its permuted address. The hidden layer never leaves the chip.

The norm over the hidden features needs its scale before any hidden value is used. With Z centred in
advance (Zc = Z - mean over hidden features, so the mean vanishes) the variance is a quadratic form
of the pair, |Zc i|^2 / H = i' G i with G = Zc' Zc / H, a quarter of the hidden layer's product; the
hidden layer then streams through in pieces.

There is no backward pass (``tests/benchmarks/README.md`` says why).

Needs Triton (the extra ``gpu``). With ``TRITON_INTERPRET=1`` it runs slowly on a processor, which
is how it is tested without a GPU.
"""

# Triton's language: tuples grow, and parameters have no Python types.
# mypy: disable-error-code="no-untyped-def, assignment"

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from model.fast.switch import FastSwitch
from model.shuffle import Direction
from model.switch import FEATURE_NORM_EPSILON, FeatureNorm, ResidualSwitchUnit

_PAIRS = 64  # pairs per program
_WARPS = 8
_MOST_ELEMENTS = 1 << 31  # offsets have 32 bits
_LEAST_TILE = 16  # smallest side that tl.dot accepts
_WIDEST_PAIR = 256  # features; of 384, sums no longer fit in registers (tests/benchmarks/README.md)
_ACTIVATIONS = {"gelu": 0, "sigmoid_gelu": 1, "relu": 2}
_DIRECTIONS: dict[Direction, int] = {"none": 0, "deinterleave": 1, "interleave": 2}


@triton.jit
def _switch_kernel(
    x_ptr,  # (batch * n / 2, 2m): pairs
    out_ptr,  # (batch, n, m)
    z_ptr,  # (H, 2m), centred if there is a norm
    gram_ptr,  # (2m, 2m)
    w_ptr,  # (2m, H)
    b_ptr,  # (2m,)
    residual_ptr,  # (2m,)
    pairs,  # of all sequences
    half,  # n / 2
    pair_width: tl.constexpr,
    hidden_width: tl.constexpr,
    normed: tl.constexpr,
    epsilon: tl.constexpr,
    activation: tl.constexpr,
    direction: tl.constexpr,
    block_pairs: tl.constexpr,
    block_features: tl.constexpr,
    block_hidden: tl.constexpr,
):
    dtype = z_ptr.dtype.element_ty
    maps: tl.constexpr = pair_width // 2
    pieces: tl.constexpr = pair_width // block_features
    rows = tl.program_id(0) * block_pairs + tl.arange(0, block_pairs)
    valid = (rows < pairs)[:, None]
    features = tl.arange(0, block_features)
    x_rows = x_ptr + rows[:, None] * pair_width

    scale = tl.full((block_pairs,), 1.0, tl.float32)
    if normed:
        variance = tl.zeros((block_pairs,), tl.float32)
        for to in range(0, pair_width, block_features):
            form = tl.zeros((block_pairs, block_features), tl.float32)
            for start in range(0, pair_width, block_features):
                columns = start + features
                x = tl.load(x_rows + columns[None, :], mask=valid, other=0.0).to(dtype)
                gram = tl.load(gram_ptr + columns[:, None] * pair_width + to + features[None, :])
                form = tl.dot(x, gram, form, input_precision="ieee")
            x = tl.load(x_rows + to + features[None, :], mask=valid, other=0.0)
            variance += tl.sum(form * x.to(dtype).to(tl.float32), axis=1)
        scale = tl.rsqrt(tl.maximum(variance, 0.0) + epsilon)

    updates = ()
    for _ in tl.static_range(pieces):
        updates = updates + (tl.zeros((block_pairs, block_features), tl.float32),)
    for first in range(0, hidden_width, block_hidden):
        units = first + tl.arange(0, block_hidden)
        hidden = tl.zeros((block_pairs, block_hidden), tl.float32)
        for start in range(0, pair_width, block_features):
            columns = start + features
            x = tl.load(x_rows + columns[None, :], mask=valid, other=0.0).to(dtype)
            z = tl.load(z_ptr + units[None, :] * pair_width + columns[:, None])
            hidden = tl.dot(x, z, hidden, input_precision="ieee")
        hidden = hidden * scale[:, None]
        if activation == 0:
            hidden = 0.5 * hidden * (1.0 + tl.erf(hidden * 0.7071067811865476))
        elif activation == 1:
            hidden = hidden * tl.sigmoid(1.702 * hidden)
        else:
            hidden = tl.maximum(hidden, 0.0)
        active = hidden.to(dtype)
        more = ()
        for piece in tl.static_range(pieces):
            columns = piece * block_features + features
            w = tl.load(w_ptr + columns[None, :] * hidden_width + units[:, None])
            more = more + (tl.dot(active, w, updates[piece], input_precision="ieee"),)
        updates = more

    sequence = rows // half
    pair = rows % half
    for piece in tl.static_range(pieces):
        columns = piece * block_features + features
        member = columns // maps  # of the pair
        x = tl.load(x_rows + columns[None, :], mask=valid, other=0.0).to(tl.float32)
        residual = tl.load(residual_ptr + columns)[None, :]
        bias = tl.load(b_ptr + columns)[None, :]
        out = residual * x + updates[piece] + bias
        address = 2 * pair[:, None] + member[None, :]
        if direction == 1:
            address = member[None, :] * half + pair[:, None]
        elif direction == 2:
            address = 2 * (address % half) + address // half
        address = sequence[:, None] * (2 * half) + address
        place = out_ptr + address * maps + (columns % maps)[None, :]
        tl.store(place, out.to(out_ptr.dtype.element_ty), mask=valid)


class TritonSwitch(FastSwitch):
    """A residual switch unit as one kernel, for units that :func:`fits` accepts."""

    halves = False

    def __init__(self, unit: ResidualSwitchUnit, dtype: torch.dtype) -> None:
        super().__init__(unit, dtype)
        self.normed = isinstance(unit.norm, FeatureNorm)
        z = unit.z.weight.detach().float()
        if self.normed:
            z = z - z.mean(dim=0)
        self.centred = z.to(dtype).contiguous()
        rounded = self.centred.float()
        self.gram = (rounded.T @ rounded / len(z)).to(dtype).contiguous()
        self.w = self.w.contiguous()
        self.bias = self.b.float()
        self.flat_residual = self.residual.flatten().contiguous()

    def __call__(self, x: Tensor, direction: Direction) -> Tensor:
        """x: (batch, n, m) float32, contiguous -> the same shape, permuted."""
        if x.numel() >= _MOST_ELEMENTS:
            return super().__call__(x, direction)
        batch, n, maps = x.shape
        out = torch.empty_like(x)
        pairs, width, hidden = batch * n // 2, 2 * maps, len(self.centred)
        _switch_kernel[(triton.cdiv(pairs, _PAIRS),)](
            x,
            out,
            self.centred,
            self.gram,
            self.w,
            self.bias,
            self.flat_residual,
            pairs,
            n // 2,
            pair_width=width,
            hidden_width=hidden,
            normed=self.normed,
            epsilon=FEATURE_NORM_EPSILON,
            activation=_ACTIVATIONS[self.activation],
            direction=_DIRECTIONS[direction],
            block_pairs=_PAIRS,
            block_features=tile(width),
            block_hidden=min(64, tile(hidden)),
            num_warps=_WARPS,
        )
        return out


def fits(unit: ResidualSwitchUnit) -> bool:
    """Whether the kernel supports this unit and pays: a norm within the unit, sides that tile, and
    a pair that is not too wide."""
    pair = unit.w.out_features
    within = isinstance(unit.norm, (FeatureNorm, torch.nn.Identity))
    tiles = min(tile(pair), tile(unit.z.out_features)) >= _LEAST_TILE
    return within and tiles and pair <= _WIDEST_PAIR


def tile(width: int) -> int:
    """The largest power of two, up to 128, that divides a width."""
    return min(128, width & -width)
