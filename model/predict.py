"""The raw output of a network for a batch of inputs, for comparisons and scripts.

``python -m model.predict WEIGHTS.safetensors X.npy Y.npy`` reads a batch of inputs and writes the
output of the network's last layer, float32, of shape (batch, positions, classes):

- symbol networks: X (batch, length) of integers; Y holds the logits of all classes at each
  position.
- the paper's network on the waveform: X (batch, samples) of numbers, a multiple of 4 with two
  convolutions; Y holds all positions, a quarter of the samples, and the 128 notes of each head in
  turn, before the logit offset of -4 and before calibration.
- networks with a filterbank: X (batch, 8192); Y holds the 63 frames, 128 samples apart, and the 128
  notes of each head in turn, before the logit offset; notes outside the network's range are -26.
"""

import io
import sys
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from model.commands import documented_parser
from model.config import LOGIT_OFFSET, WINDOW
from model.storage import WeightsError, load, read_card, resolve, write_whole
from model.symbols import KIND, SymbolNetwork, load_symbol_network
from model.transcriber import FilterbankNetwork, StridedNetwork, TranscriptionModel

BATCH = 16  # inputs at once, to bound the memory


class InputError(ValueError):
    """Inputs that a network cannot take."""


def main(arguments: list[str] | None = None) -> int:
    parser = documented_parser("model.predict", __doc__)
    parser.add_argument("weights", metavar="WEIGHTS.safetensors", help="a path or a shipped name")
    parser.add_argument("inputs", metavar="X.npy", type=Path)
    parser.add_argument("outputs", metavar="Y.npy", type=Path)
    options = parser.parse_args(arguments)
    try:
        outputs = predict(load_any(options.weights), read_array(options.inputs))
        buffer = io.BytesIO()
        np.save(buffer, outputs, allow_pickle=False)
        write_whole(options.outputs, buffer.getvalue())
    except (WeightsError, InputError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(f"{options.outputs}: {' x '.join(map(str, outputs.shape))}")
    return 0


def load_any(name_or_path: str | Path) -> TranscriptionModel | SymbolNetwork:
    """The network that the card of these weights describes, in float32. Raises WeightsError."""
    config = read_card(resolve(name_or_path))["config"]
    if isinstance(config, dict) and config.get("kind") == KIND:
        return load_symbol_network(name_or_path)
    return load(name_or_path, dtype=torch.float32)


def read_array(path: Path) -> NDArray:
    """An .npy file. Raises InputError if it cannot be read."""
    try:
        array = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise InputError(f"cannot read {path}: {error}") from error
    if not isinstance(array, np.ndarray):
        raise InputError(f"{path} is an archive of arrays, not one array")
    return array


@torch.inference_mode()
def predict(network: TranscriptionModel | SymbolNetwork, inputs: NDArray) -> NDArray[np.float32]:
    """(batch, length) inputs -> (batch, positions, classes) raw outputs.

    Raises InputError for inputs of the wrong shape or type and for symbols outside the vocabulary.
    """
    if inputs.ndim != 2 or not inputs.size:
        raise InputError(f"expected inputs of shape (batch, length), got {inputs.shape}")
    if isinstance(network, SymbolNetwork):
        batch = check_symbols(network, inputs)
    else:
        batch = check_audio(network, inputs)
    outputs = [raw_output(network, part) for part in batch.split(BATCH)]
    return torch.cat(outputs).float().numpy()


def raw_output(network: TranscriptionModel | SymbolNetwork, batch: Tensor) -> Tensor:
    """(batch, length) -> (batch, positions, classes), as the module's docstring describes."""
    if isinstance(network, SymbolNetwork):
        return network(batch)
    match network.network:
        case StridedNetwork() as strided:
            return strided.raw(batch)
        case FilterbankNetwork() as filterbank:
            logits = filterbank(batch) - LOGIT_OFFSET  # (batch, heads, FRAMES, PITCHES)
            return logits.transpose(1, 2).flatten(2)


def check_symbols(network: SymbolNetwork, inputs: NDArray) -> Tensor:
    """Symbols as int64. Raises InputError unless they are integers of the vocabulary."""
    if inputs.dtype.kind not in "fiu" or not np.array_equal(inputs, np.floor(inputs)):
        raise InputError(f"expected symbols as integers, got {inputs.dtype}")
    last, lowest, highest = network.config.vocabulary - 1, inputs.min(), inputs.max()
    if lowest < 0 or highest > last:
        raise InputError(f"expected symbols 0 ... {last}, got {lowest} ... {highest}")
    return torch.from_numpy(inputs.astype(np.int64))


def check_audio(network: TranscriptionModel, inputs: NDArray) -> Tensor:
    """Samples as float32. Raises InputError for other types, NaN and unsuitable lengths."""
    if inputs.dtype.kind not in "fiu":
        raise InputError(f"expected samples as real numbers, got {inputs.dtype}")
    samples = inputs.astype(np.float32)
    if not np.isfinite(samples).all():
        raise InputError("samples must be finite")
    length = samples.shape[1]
    match network.network:
        case FilterbankNetwork() if length != WINDOW:
            raise InputError(f"expected windows of {WINDOW} samples, got {length}")
        case StridedNetwork(front_end=front_end) if length % front_end.stride:
            raise InputError(f"expected a multiple of {front_end.stride} samples, got {length}")
    return torch.from_numpy(samples)


if __name__ == "__main__":
    sys.exit(main())
