"""Switch and shuffle layers that share one unit, as one function with its own gradient.

It gives the values and gradients of ``model.switch`` and ``model.shuffle`` layer by layer, up to
rounding, for the paper's unit (normalisation over features, GELU, learned residual scale) with
fewer passes over memory: h is folded into W, the residual sum is written where the shuffle puts
it, and the gradient of the shared weights is accumulated in place.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from model.shuffle import Direction, places
from model.switch import FEATURE_NORM_EPSILON, FeatureNorm, ResidualSwitchUnit


def fits(unit: nn.Module) -> bool:
    """Whether :func:`switch_layers` computes such a unit, at this point of a program."""
    return (
        isinstance(unit, ResidualSwitchUnit)
        and isinstance(unit.norm, FeatureNorm)
        and unit.activation == "gelu"
        and unit.residual_scale == "learned"
        and torch.is_grad_enabled()
        and not torch.compiler.is_compiling()
    )


def switch_layers(
    unit: ResidualSwitchUnit, x: Tensor, layers: int, direction: Direction, dropout: float = 0.0
) -> Tensor:
    """Applies `layers` times the unit, dropout and a permutation.

    x: (batch, n, m), n a multiple of 4 where it is permuted, else even -> the same shape. Under
    autocast matrix products are computed in its type and the residual stream in float32.
    """
    kind = x.device.type
    product = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else x.dtype
    with torch.autocast(kind, enabled=False):
        out: Tensor = _SwitchLayers.apply(
            x.to(torch.promote_types(x.dtype, unit.s.dtype)),
            unit.z.weight.to(product),
            (unit.update_scale * unit.w.weight).to(product),
            (unit.update_scale * unit.w.bias).to(product),
            torch.sigmoid(unit.residual_speed * unit.s),
            layers,
            direction,
            dropout,
        )
    return out


class _SwitchLayers(torch.autograd.Function):
    """x (batch, n, m); z (hidden, 2m); w (2m, hidden) and b (2m,) times h; scale (2m,)."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        z: Tensor,
        w: Tensor,
        b: Tensor,
        scale: Tensor,
        layers: int,
        direction: Direction,
        dropout: float,
    ) -> Tensor:
        scale_rows = scale.view(2, -1)
        kept: list[Tensor] = []
        for _ in range(layers):
            pairs = x.reshape(-1, len(scale)).to(z.dtype)  # (rows, 2m)
            wide = F.linear(pairs, z)  # (rows, hidden)
            normal, mean, deviation = torch.native_layer_norm(
                wide, wide.shape[-1:], None, None, FEATURE_NORM_EPSILON
            )
            hidden = F.gelu(normal)
            update = F.linear(hidden, w, b)
            out = torch.empty_like(x)
            place = places(out, direction)
            stream = x.view(place.shape)
            torch.addcmul(update.view(place.shape), stream, scale_rows, out=place)
            kept += [pairs, wide, normal, mean, deviation, hidden]
            if dropout:
                noise = torch.empty_like(out).bernoulli_(1 - dropout).div_(1 - dropout)
                out.mul_(noise)
                kept.append(noise)
            x = out
        ctx.save_for_backward(z, w, scale, *kept)
        ctx.layers, ctx.direction, ctx.dropout = layers, direction, dropout
        return x

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        z, w, scale, *kept = ctx.saved_tensors
        scale_rows = scale.view(2, -1)
        of_z, of_w = (torch.zeros_like(a, dtype=scale.dtype) for a in (z, w))
        of_b, of_scale = (torch.zeros_like(scale) for _ in range(2))
        size = len(kept) // ctx.layers
        for layer in reversed(range(ctx.layers)):
            pairs, wide, normal, mean, deviation, hidden, *noise = kept[
                size * layer : size * (layer + 1)
            ]
            if noise:
                gradient = gradient * noise[0]
            place = places(gradient.contiguous(), ctx.direction)
            flow = torch.empty(place.shape, dtype=z.dtype, device=z.device)
            of_update = flow.copy_(place).view_as(pairs)
            of_normal = torch.ops.aten.gelu_backward(of_update @ w, normal)
            of_wide = torch.ops.aten.native_layer_norm_backward(
                of_normal, wide, wide.shape[-1:], mean, deviation, None, None, [True, False, False]
            )[0]
            _add_product(of_z, of_wide.t(), pairs)
            _add_product(of_w, of_update.t(), hidden)
            of_b += of_update.sum(dim=0)
            of_scale += (of_update * pairs).sum(dim=0)
            of_pairs = (of_wide @ z).view(place.shape)
            gradient = torch.addcmul(of_pairs, place, scale_rows).view_as(gradient)
        return gradient, of_z.to(z.dtype), of_w.to(z.dtype), of_b.to(z.dtype), of_scale, *[None] * 3


def _add_product(total: Tensor, left: Tensor, right: Tensor) -> None:
    """total += left @ right, summed in the precision of `total`."""
    if total.dtype == left.dtype:
        total.addmm_(left, right)
    else:
        total += left @ right
