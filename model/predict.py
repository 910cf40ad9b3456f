"""Writes the raw output of one of the paper's networks, to compare it with the authors' code.

``python -m model.predict WEIGHTS.safetensors X.npy Y.npy`` reads a batch of inputs and writes the
output of the network's last layer, float32, of shape (batch, positions, classes):

- symbol networks: X holds integers, (batch, length). Y holds the logits of all classes at each
  position.
- networks on the waveform: X holds samples, (batch, samples). With two convolutions there is one
  position for every four samples. Y holds logits before the logit offset and the calibration are
  applied. The classes are the 128 pitches of each head in turn.
"""

import sys
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from model.commands import documented_parser
from model.storage import WeightsError, load, read_card, replace_file, resolve
from model.symbols import KIND, SymbolNetwork, load_symbol_network
from model.transcriber import StridedNetwork

BATCH = 16  # maximum number of inputs computed at once, to limit memory use


def main(arguments: list[str] | None = None) -> int:
    parser = documented_parser("model.predict", __doc__)
    parser.add_argument(
        "weights", metavar="WEIGHTS.safetensors", help="one of the paper's networks"
    )
    parser.add_argument("inputs", metavar="X.npy", type=Path)
    parser.add_argument("outputs", metavar="Y.npy", type=Path)
    options = parser.parse_args(arguments)
    try:
        network = load_any(options.weights)
        with options.inputs.open("rb") as file:
            inputs = np.lib.format.read_array(file, allow_pickle=False)
        outputs = predict(network, inputs)
        replace_file(options.outputs, lambda file: np.save(file, outputs))
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(f"{options.outputs}: {' x '.join(map(str, outputs.shape))}")
    return 0


def load_any(name_or_path: str | Path) -> StridedNetwork | SymbolNetwork:
    """Load a symbol network or a network on the waveform, in float32. Raises WeightsError for
    other networks, and if the weights cannot be loaded."""
    config = read_card(resolve(name_or_path))["config"]
    if isinstance(config, dict) and config.get("kind") == KIND:
        return load_symbol_network(name_or_path)
    network = load(name_or_path, dtype=torch.float32).network
    if not isinstance(network, StridedNetwork):
        raise WeightsError(f"{name_or_path} is neither a symbol network nor a waveform network")
    return network


@torch.inference_mode()
def predict(network: StridedNetwork | SymbolNetwork, inputs: NDArray) -> NDArray[np.float32]:
    """Map inputs, (batch, length), to raw outputs, (batch, positions, classes). Raises ValueError
    for inputs of the wrong shape or type, for numbers that are not finite, and for symbols that are
    not integers or are outside the vocabulary."""
    if inputs.ndim != 2 or not inputs.size or inputs.dtype.kind not in "biuf":
        actual = f"{inputs.dtype} {inputs.shape}"
        raise ValueError(f"expected numbers of shape (batch, length), got {actual}")
    if not np.isfinite(inputs).all():
        raise ValueError("expected finite numbers, got NaN or infinite values")
    if isinstance(network, SymbolNetwork):
        batch, last = torch.from_numpy(inputs.astype(np.int64)), network.config.vocabulary - 1
        if not np.array_equal(batch, inputs) or batch.min() < 0 or batch.max() > last:
            raise ValueError(f"expected symbols 0 ... {last} only")
        return torch.cat([network(part) for part in batch.split(BATCH)]).numpy()
    samples, stride = inputs.shape[1], network.front_end.stride
    if samples % stride:
        raise ValueError(f"the number of samples must be a multiple of {stride}, not {samples}")
    batch = torch.from_numpy(inputs.astype(np.float32))
    return torch.cat([network.raw(part) for part in batch.split(BATCH)]).numpy()


if __name__ == "__main__":
    sys.exit(main())
