"""The layers of a shuffle-exchange network: Residual Switch Units and shuffles.

The unit (paper, section "Residual Shuffle-Exchange Network", appendix A) maps a pair of neighbours
i = [i1, i2] (2m features)::

    g = GELU(norm(Z i));   c = W g + B;   [o1, o2] = sigma(S) * i + h * c

The paper's ablations (section "Ablation study") drop the norm, the residual or its scale.

With b = log2(n) address bits, ``deinterleave`` rotates each element's address right by one bit.
``interleave``, the inverse, rotates it left::

    x             0 1 2 3 4 5 6 7
    deinterleave  0 2 4 6 1 3 5 7
    interleave    0 4 1 5 2 6 3 7

The released code shuffles with ``deinterleave`` in the first half of a Beneš block, so its switch
layers pair neighbours first, then elements 2, 4, ..., n/4 apart. The paper's text (101 to 011)
describes ``interleave``. In both cases, the second half uses the inverse and restores the order.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from model.config import Activation, Norm, RSEConfig

NORM_EPSILON = 1e-10  # released code; small enough for inputs of standard deviation 0.25
FEATURE_NORM_EPSILON = 1e-6


class SequenceNorm(nn.Module):
    """The released code's normalisation: per example and channel, over the sequence axis. Its bias
    is added as ``x + (x + b)``, so the centred input counts twice: u = 2 (x - mean) + b,
    y = u / rms(u)."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(channels))

    def forward(self, x: Tensor) -> Tensor:
        """Normalise (batch, length, channels) over the length."""
        dtype = x.dtype
        if dtype == torch.float16:  # in which NORM_EPSILON is 0
            x = x.float()
        u = 2 * (x - x.mean(dim=1, keepdim=True)) + self.bias
        y = u * torch.rsqrt(u.square().mean(dim=1, keepdim=True) + NORM_EPSILON)
        return y.half() if dtype == torch.float16 else y


class FeatureNorm(nn.Module):
    """The paper's LayerNorm: over features, without gain or bias."""

    def forward(self, x: Tensor) -> Tensor:
        """Normalise (..., channels) over the channels."""
        return F.layer_norm(x, x.shape[-1:], eps=FEATURE_NORM_EPSILON)


def make_norm(kind: Norm, channels: int) -> nn.Module:
    """Return the normalisation named by ``RSEConfig.norm``."""
    match kind:
        case "sequence":
            return SequenceNorm(channels)
        case "feature":
            return FeatureNorm()
        case "none":
            return nn.Identity()


def activate(kind: Activation, x: Tensor) -> Tensor:
    """Apply the activation function named by ``RSEConfig.activation``."""
    match kind:
        case "gelu":
            return F.gelu(x)
        case "sigmoid_gelu":
            return x * torch.sigmoid(1.702 * x)
        case "relu":
            return F.relu(x)


def initialise_map(linear: nn.Linear, config: RSEConfig) -> None:
    """Initialise a linear map that follows an activation, by the method that ``RSEConfig.init``
    names."""
    if config.init == "paper":
        keep_amplitude(linear, config.activation)
    else:
        initialise(linear)


def initialise(linear: nn.Linear) -> None:
    """Initialise with Glorot-uniform weights and small positive biases (released code)."""
    nn.init.xavier_uniform_(linear.weight)
    nn.init.uniform_(linear.bias, 0, 0.01)


@torch.no_grad()
def keep_amplitude(linear: nn.Linear, activation: Activation) -> None:
    """Initialise a linear map so that its outputs have standard deviation 1 if the features before
    the activation are normally distributed with mean 0 and standard deviation 1.

    If the entries of W are drawn independently and each row's mean is then subtracted, every output
    has nearly the variance k Var(w) Var(g) for k inputs. After a GELU, Var(g) is
    1/3 + 1/(2 pi sqrt(3)) - 1/(4 pi) = 0.346. The rows must sum to 0 because all layers of a half
    block share W. Otherwise the mean of g, 0.28, would add the same vector in every layer.
    """
    normal = torch.special.ndtri((torch.arange(4096, dtype=torch.double) + 0.5) / 4096)
    deviation = activate(activation, normal).std().item()
    limit = math.sqrt(3 / linear.in_features) / deviation
    nn.init.uniform_(linear.weight, -limit, limit)
    linear.weight -= linear.weight.mean(dim=1, keepdim=True)
    nn.init.zeros_(linear.bias)


class ResidualSwitchUnit(nn.Module):
    """One switch layer: the same unit on every pair of neighbours."""

    def __init__(self, config: RSEConfig) -> None:
        super().__init__()
        pair = 2 * config.maps
        hidden = config.hidden_factor * pair
        self.activation = config.activation
        self.residual_speed = config.residual_speed
        self.update_scale = 0.25 * math.sqrt(1 - config.residual**2)  # h
        self.z = nn.Linear(pair, hidden, bias=False)
        self.norm = make_norm(config.norm, hidden)
        self.w = nn.Linear(hidden, pair)
        self.residual_scale = config.residual_scale
        if config.residual_scale == "learned":
            logit = math.log(config.residual / (1 - config.residual))
            self.s = nn.Parameter(torch.full((pair,), logit / config.residual_speed))
        nn.init.xavier_uniform_(self.z.weight)
        initialise_map(self.w, config)

    def forward(self, x: Tensor) -> Tensor:
        """Map (batch, n, m), n even, to the same shape."""
        batch, n, maps = x.shape
        pairs = x.reshape(batch, n // 2, 2 * maps)
        hidden = activate(self.activation, self.norm(self.z(pairs)))  # (batch, n/2, hidden)
        update = self.w(hidden)
        match self.residual_scale:
            case "learned":
                residual = torch.sigmoid(self.residual_speed * self.s) * pairs
                out = residual + self.update_scale * update
            case "one":
                out = pairs + self.update_scale * update
            case _:
                out = update
        return out.view(batch, n, maps)


def depth_scaled(dropout: float, bits: int) -> float:
    """Return the dropout rate of one layer for sequences of 2^bits elements. As in the released
    code, each layer drops less if the sequence is longer and the network therefore deeper."""
    return dropout / bits


def deinterleave(x: Tensor) -> Tensor:
    """Return the even elements, then the odd ones. x: (batch, n, features), n even."""
    batch, n, features = x.shape
    return x.view(batch, n // 2, 2, features).transpose(1, 2).reshape(batch, n, features)


def interleave(x: Tensor) -> Tensor:
    """Interleave the elements of both halves: the inverse of :func:`deinterleave`."""
    batch, n, features = x.shape
    return x.view(batch, 2, n // 2, features).transpose(1, 2).reshape(batch, n, features)


def shuffles(config: RSEConfig) -> tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]:
    """Return the shuffles in the first and in the second half of a Beneš block."""
    return (
        (deinterleave, interleave) if config.shuffle == "released" else (interleave, deinterleave)
    )
