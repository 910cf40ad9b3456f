"""The authors' released network in plain numpy, float64, by the names of their variables.

Written from its formulas alone, apart from the network under test; shuffles are index tables.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]
Variables = Mapping[str, NDArray]

ROOT = "var_lengths/"
STEP = 0.25 * np.sqrt(1 - 0.9**2)


def predict(variables: Variables, inputs: NDArray) -> Values:
    """(batch, length) symbols or samples -> (batch, positions, classes)."""
    get = {name: np.asarray(value, np.float64) for name, value in variables.items()}
    x = embed(get, inputs) if f"{ROOT}embedding" in get else convolve(get, inputs)
    x = shuffle_exchange(get, x)
    return x @ get[f"{ROOT}output/CvK"] + get[f"{ROOT}output/CvB"]


def embed(get: Mapping[str, Values], symbols: NDArray) -> Values:
    x = get[f"{ROOT}embedding"][symbols.astype(int)]
    if f"{ROOT}embedding_linear/CvK" in get:
        x = x @ get[f"{ROOT}embedding_linear/CvK"] + get[f"{ROOT}embedding_linear/CvB"]
    return x


def convolve(get: Mapping[str, Values], samples: NDArray) -> Values:
    x = samples.astype(np.float64)[:, :, None]
    layer = 1
    while get.get(f"{ROOT}pool1/conv{layer}/CvK", np.zeros(0)).ndim == 3:
        kernel = get[f"{ROOT}pool1/conv{layer}/CvK"]  # (4, in, out)
        padded = np.pad(x, ((0, 0), (1, 1), (0, 0)))
        places = range(0, x.shape[1], 2)
        x = np.stack([np.einsum("bki,kio->bo", padded[:, p : p + 4], kernel) for p in places], 1)
        x = gelu(normalise(x, get[f"{ROOT}pool1/norm{layer}/norm_bias/offset"]))
        layer += 1
    if layer == 1:
        return x @ get[f"{ROOT}output_conv/CvK"] + get[f"{ROOT}output_conv/CvB"]
    last = f"{ROOT}pool1/conv{layer}"
    return 0.25 * (x @ get[f"{last}/CvK"] + get[f"{last}/CvB"])


def shuffle_exchange(get: Mapping[str, Values], x: Values) -> Values:
    n = x.shape[1]
    bits = n.bit_length() - 1
    left = [((i << 1) | (i >> (bits - 1))) & (n - 1) for i in range(n)]  # rotated by a bit
    right = np.argsort(left)
    steps = f"{ROOT}steps_recursive/"
    block = 0
    while f"{steps}{block}_forward/residual" in get:
        for _ in range(bits - 1):
            x = switch(get, f"{steps}{block}_forward", x)[:, left]
        for _ in range(bits - 1):
            x = switch(get, f"{steps}{block}_reverse", x)[:, right]
        block += 1
    return switch(get, f"{steps}last", x)


def switch(get: Mapping[str, Values], name: str, x: Values) -> Values:
    batch, n, maps = x.shape
    pairs = x.reshape(batch, n // 2, 2 * maps)
    z = pairs @ get[f"{name}/cand1/c/CvK"]
    g = gelu(normalise(z, get[f"{name}/norm/c/norm_bias/offset"]))
    c = g @ get[f"{name}/cand2/c/CvK"] + get[f"{name}/cand2/c/CvB"]
    out = sigmoid(2 * get[f"{name}/residual"]) * pairs + STEP * c
    return out.reshape(batch, n, maps)


def normalise(x: Values, bias: Values) -> Values:
    """Over the sequence; the bias is added to the doubled centred input."""
    u = 2 * (x - x.mean(axis=1, keepdims=True)) + bias
    return u / np.sqrt((u**2).mean(axis=1, keepdims=True) + 1e-10)


def gelu(x: Values) -> Values:
    return x * sigmoid(1.702 * x)


def sigmoid(x: Values) -> Values:
    return 1 / (1 + np.exp(-x))
