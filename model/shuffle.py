"""The two fixed permutations of a shuffle-exchange network.

With b = log2(n) address bits, ``deinterleave`` rotates each element's address right by one bit and
``interleave`` rotates it left; they are inverses::

    x             0 1 2 3 4 5 6 7
    deinterleave  0 2 4 6 1 3 5 7
    interleave    0 4 1 5 2 6 3 7

The released code shuffles with ``deinterleave`` in the first half of a Beneš block, so its switch
layers pair neighbours first, then elements 2, 4, ..., n/4 apart; the paper's text (101 to 011)
describes ``interleave``. Both restore the original order.
"""

from typing import Literal

from torch import Tensor

Direction = Literal["deinterleave", "interleave", "none"]


def deinterleave(x: Tensor) -> Tensor:
    """Even elements, then odd ones. x: (batch, n, features), n even."""
    batch, n, features = x.shape
    return x.view(batch, n // 2, 2, features).transpose(1, 2).reshape(batch, n, features)


def interleave(x: Tensor) -> Tensor:
    """Elements of the two halves alternately; the inverse of :func:`deinterleave`."""
    batch, n, features = x.shape
    return x.view(batch, 2, n // 2, features).transpose(1, 2).reshape(batch, n, features)


def places(out: Tensor, direction: Direction) -> Tensor:
    """A view of (batch, n, m) that shows element 2p + q of the input where the permutation puts
    it; (batch, halves, pairs, 2, m) with the pairs p of the input's halves, or of all of it."""
    batch, n, maps = out.shape
    match direction:
        case "deinterleave":  # to q * n/2 + p
            return out.view(batch, 1, 2, n // 2, maps).transpose(2, 3)
        case "interleave":  # of half h and place 2s + q in it, to 2 * (2s + q) + h
            return out.view(batch, n // 4, 2, 2, maps).permute(0, 3, 1, 2, 4)
        case _:
            return out.view(batch, 1, n // 2, 2, maps)
