"""Imported networks of many shapes against a restatement of the released code.

The restatement itself is held against recorded outputs of that code; from there it says what the
code would put out for sizes that were not recorded.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from model import import_tf
from model import predict as prediction
from tests.conftest import SHARED
from tests.model.released.tf_writer import training_variables, write_checkpoint
from tests.model.restatement import ROOT, predict

ORACLES = SHARED / "reference" / "oracles"
RECORDED = sorted(p for p in ORACLES.glob("*_*.npz") if not p.name.startswith("train_"))
TOLERANCE = 1e-4


class Variables(dict[str, NDArray]):
    """Random variables of a network of the released code, made by their names and shapes."""

    def __init__(self, maps: int, blocks: int, classes: int, seed: int = 0) -> None:
        super().__init__()
        self.maps, self.rng = maps, np.random.default_rng(seed)
        for name in [f"{k}_{half}" for k in range(blocks) for half in ("forward", "reverse")]:
            self.switch(name)
        self.switch("last")
        self.linear("output", maps, classes)

    def random(self, name: str, *shape: int, scale: float = 1.0) -> None:
        self[f"{ROOT}{name}"] = (scale * self.rng.normal(size=shape)).astype(np.float32)

    def linear(self, name: str, before: int, after: int) -> None:
        self.random(f"{name}/CvK", before, after, scale=before**-0.5)
        self.random(f"{name}/CvB", after, scale=0.1)

    def switch(self, name: str) -> None:
        name, pair = f"steps_recursive/{name}", 2 * self.maps
        self.random(f"{name}/cand1/c/CvK", pair, 2 * pair, scale=pair**-0.5)
        self.random(f"{name}/norm/c/norm_bias/offset", 1, 1, 2 * pair, scale=0.3)
        self.linear(f"{name}/cand2/c", 2 * pair, pair)
        self.random(f"{name}/residual", pair)

    def embedded(self, vocabulary: int, width: int = 0) -> Variables:
        """Reads symbols, through a linear map if the embedding has a width of its own."""
        self.random("embedding", vocabulary, width or self.maps, scale=0.25)
        if width:
            self.linear("embedding_linear", width, self.maps)
        return self

    def convolved(self, *channels: int) -> Variables:
        """Reads samples, through this many convolutions; calibrated."""
        for layer, (before, after) in enumerate(zip((1, *channels), channels, strict=False), 1):
            self.random(f"pool1/conv{layer}/CvK", 4, before, after, scale=(4 * before) ** -0.5)
            self.random(f"pool1/norm{layer}/norm_bias/offset", 1, 1, after, scale=0.3)
        last = f"pool1/conv{len(channels) + 1}" if channels else "output_conv"
        self.linear(last, (1, *channels)[-1], self.maps)
        self.random("corrected_result/scale", 128)
        self.random("corrected_result/offset", 128)
        return self


def imported(folder: Path, variables: dict[str, NDArray], inputs: NDArray) -> NDArray:
    """What the two command lines make of a checkpoint and a batch of inputs."""
    write_checkpoint(folder / "varWeights.ckpt", training_variables(variables))
    weights = folder / "weights.safetensors"
    assert import_tf.main([str(folder / "varWeights.ckpt"), str(weights)]) == 0
    np.save(folder / "x.npy", inputs)
    files = [str(folder / name) for name in ("x.npy", "y.npy")]
    assert prediction.main([str(weights), *files]) == 0
    return np.load(folder / "y.npy")


@pytest.mark.parametrize("path", RECORDED, ids=lambda p: p.stem)
def test_the_restatement_puts_out_what_was_recorded(path: Path) -> None:
    with np.load(path) as file:
        if "out/prediction" not in file.files:
            pytest.skip("not a recording of a network")
        variables = {name: file[name] for name in file.files if name.startswith(ROOT)}
        found = predict(variables, file["in/x"])
        np.testing.assert_allclose(found, file["out/prediction"], atol=TOLERANCE)


@pytest.mark.parametrize("length", [2, 64])
@pytest.mark.parametrize(
    ("maps", "blocks", "classes", "vocabulary", "width"),
    [
        (16, 1, 4, 13, 0),  # addition
        (7, 1, 12, 12, 0),  # sorting, an odd number of maps
        (24, 3, 3, 50, 0),  # LAMBADA, more blocks
        (8, 2, 3, 90, 20),  # LAMBADA with word vectors
        (1, 1, 2, 2, 1),
    ],
)
def test_networks_over_symbols(
    tmp_path: Path, length: int, maps: int, blocks: int, classes: int, vocabulary: int, width: int
) -> None:
    variables = Variables(maps, blocks, classes).embedded(vocabulary, width)
    symbols = np.random.default_rng(1).integers(0, vocabulary, (3, length))
    symbols[0] = 0  # nothing but padding: every channel is constant
    found = imported(tmp_path, variables, symbols)
    np.testing.assert_allclose(found, predict(variables, symbols), atol=TOLERANCE)


@pytest.mark.parametrize(
    ("maps", "blocks", "window", "channels"),
    [
        (16, 2, 1024, (8, 32)),
        (9, 3, 256, (4, 18)),  # an odd number of maps
        (8, 2, 64, ()),
        (8, 1, 256, (16,)),
        (8, 2, 1024, (4, 8, 16)),
    ],
)
def test_networks_that_transcribe(
    tmp_path: Path, maps: int, blocks: int, window: int, channels: tuple[int, ...]
) -> None:
    variables = Variables(maps, blocks, 128).convolved(*channels)
    samples = np.random.default_rng(1).normal(size=(4, window)).astype(np.float32)
    samples[1] *= 1e-4
    samples[2] = 0
    spectrum = np.fft.rfft(samples[0])[: window // 2].astype(np.complex64)
    samples[3] = spectrum.view(np.float32)
    found = imported(tmp_path, variables, samples)
    np.testing.assert_allclose(found, predict(variables, samples), atol=TOLERANCE)
