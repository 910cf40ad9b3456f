"""Exports a transcription network to ONNX: ``python -m model.export_onnx live live.onnx``.

The graph is one step of a stream, for hosts without torch. The batch axis is dynamic.

- Inputs: ``new``, (batch, 128 * block_frames) samples at the model's rate, and the state after the
  previous step. The initial state is zeros.
- Outputs: ``probabilities``, (batch, heads, block_frames, 128), of the frames whose look-ahead is
  complete, and ``next_NAME`` for each state NAME.

Step j, counted from 0, returns the frames from ``block_frames * j + first_frame`` on. Frame f
describes sample 128 * f of the stream. Frames with negative numbers precede the stream.

The file's metadata contains the sample rate, heads, note tracker settings, shapes of the state and
other constants. ``live.onnx.json`` contains the same data, for hosts that cannot read metadata.
"""

import json
import logging
import sys
import warnings
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from model.commands import documented_parser
from model.config import FRAMES, HOP
from model.storage import WeightsError, load, write_atomically
from model.transcriber import FilterbankNetwork, TranscriptionModel

try:
    import onnx
    import onnx_ir.passes.common as passes
    import onnxscript.optimizer
except ImportError as missing:
    sys.exit(f"{missing.name} is missing: pip install 'rse-transcribe[onnx]'")

OPSET = 20
LOOKAHEAD_HOPS = 9
BLOCK_FRAMES = 4
_UNLIMITED = 1 << 40  # maximum number of elements of a folded constant, large enough for all


def main(arguments: list[str] | None = None) -> int:
    parser = documented_parser("model.export_onnx", __doc__)
    add = parser.add_argument
    add("weights", help="name of shipped weights, or path of a .safetensors file")
    add("out", metavar="OUT.onnx", type=Path)
    ahead = "hops from a step's newest frame to the end of its audio (default: %(default)d)"
    add("--lookahead-hops", type=int, metavar="N", default=LOOKAHEAD_HOPS, help=ahead)
    frames = "number of frames per step (default: %(default)d)"
    add("--block-frames", type=int, metavar="N", default=BLOCK_FRAMES, help=frames)
    options = parser.parse_args(arguments)
    logging.disable(logging.WARNING)  # torch.onnx suggests optional packages
    try:
        transcriber = load(options.weights, dtype=torch.float32)
        model = export(StepGraph(transcriber, options.lookahead_hops, options.block_frames))
        data = model.SerializeToString()
        write_atomically(options.out, data)
        write_atomically(Path(f"{options.out}.json"), json.dumps(onnx_metadata(model)).encode())
        print(f"{options.out}: {len(data) / 1e6:.1f} MB")
    except (WeightsError, ValueError, OSError) as problem:
        print(f"error: {problem}", file=sys.stderr)
        return 1
    finally:
        logging.disable(logging.NOTSET)
    return 0


class StepGraph(nn.Module):
    """One step of a stream: maps its next hops to the probabilities of the same number of frames.

    The inputs are the samples of the next hops and the state after the previous step. The outputs
    are the probabilities of the frames whose look-ahead is complete, and the next state. The host
    therefore needs no ring buffer. Each step computes only its new constant-Q columns. The state
    consists of the older samples that the kernels need, and of the older columns minus the value of
    silence. The initial state, zeros, therefore means silence.

    Attributes:
        inputs: an example of each input tensor, by name.
        about: metadata for hosts.
    """

    def __init__(
        self, transcriber: TranscriptionModel, lookahead_hops: int, block_frames: int
    ) -> None:
        """Args:
            lookahead_hops: number of hops from the newest frame of a step to the end of its audio.
            block_frames: number of hops, and of frames, in a step.

        Raises:
            ValueError: the step does not fit into a window, or the network has no filterbank.
        """
        super().__init__()
        newest, minimum = FRAMES - lookahead_hops, transcriber.config.min_lookahead_hops
        if lookahead_hops < minimum or not 1 <= block_frames <= newest + 1:
            raise ValueError(
                f"a look-ahead of {lookahead_hops} hops (at least {minimum}) and blocks of "
                f"{block_frames} frames do not fit into a window of {FRAMES} frames"
            )
        if not isinstance(transcriber.network, FilterbankNetwork):
            raise ValueError("only networks with a filterbank can be exported")
        self.transcriber = transcriber
        self.network = transcriber.network
        self.bank = transcriber.network.filterbank
        self.block_frames = block_frames
        self.positions = slice(newest - block_frames + 1, newest + 1)
        columns = self.bank.columns - self.bank.config.edge - block_frames
        state = {"samples": (self.bank.longest - HOP,), "columns": (self.bank.bins, columns)}
        self.inputs = {"new": torch.zeros(2, HOP * block_frames)}
        self.inputs |= {name: torch.zeros(2, *shape) for name, shape in state.items()}
        self.about: dict[str, object] = {
            "lookahead_hops": lookahead_hops,
            "block_frames": block_frames,
            "first_frame": 1 - lookahead_hops,
            "state": state,
        }

    def forward(
        self, new: Tensor, samples: Tensor, columns: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Map (batch, block_frames * HOP) samples and the state to probabilities (batch, heads,
        block_frames, PITCHES) and the next state."""
        bank = self.bank
        audio = torch.cat([samples, new], dim=1)
        silence = bank.compress(audio.new_zeros(()))
        new_columns = bank.compress(bank.power(audio)) - silence  # (batch, bins, block_frames)
        columns = torch.cat([columns, new_columns], dim=2)
        logits = self.network.from_features(F.pad(columns, (0, bank.config.edge)) + silence)
        selected = self.transcriber.calibrate(logits)[:, :, self.positions]
        start = HOP * self.block_frames
        return torch.sigmoid(selected), audio[:, start:], columns[:, :, self.block_frames :]


def onnx_metadata(model: onnx.ModelProto) -> dict[str, Any]:
    """Return the metadata of an exported graph."""
    return {entry.key: json.loads(entry.value) for entry in model.metadata_props}


def export(graph: StepGraph) -> onnx.ModelProto:
    """Export the graph. The result has the metadata that a host needs."""
    config = graph.transcriber.config
    about = {
        "model": config.name,
        "sample_rate": config.sample_rate,
        "hop": HOP,
        "heads": config.heads,
        "tracker": graph.transcriber.card.get("tracker") or {},
    } | graph.about
    names = list(graph.inputs)
    batch = torch.export.Dim("batch")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch and its exporter warn about their own code
        program = torch.onnx.export(
            graph.eval(),
            tuple(graph.inputs.values()),
            input_names=names,
            output_names=["probabilities", *(f"next_{name}" for name in names[1:])],
            opset_version=OPSET,
            dynamo=True,
            dynamic_shapes=tuple({0: batch} for _ in names),
            # The optimiser drops additions of 1e-9, so the logarithm of silence would be infinite.
            optimize=False,
            verbose=False,
        )
    assert program is not None
    # Merge duplicates that come from shared weights, then fold everything that is constant.
    passes.CommonSubexpressionEliminationPass()(program.model)
    sizes = {"input_size_limit": _UNLIMITED, "output_size_limit": _UNLIMITED}
    onnxscript.optimizer.fold_constants(program.model, **sizes)
    onnxscript.optimizer.remove_unused_nodes(program.model)
    passes.ClearMetadataAndDocStringPass()(program.model)
    model = program.model_proto
    onnx.helper.set_model_props(model, {name: json.dumps(value) for name, value in about.items()})
    return model


if __name__ == "__main__":
    sys.exit(main())
