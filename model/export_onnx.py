"""A transcription network as ONNX: ``python -m model.export_onnx live live.onnx``.

Writes two graphs with a free batch axis, for hosts without torch:

- ``live.onnx``: ``windows`` (batch, samples) at the model's rate -> ``probabilities`` (batch,
  heads, 63, 128); frame i describes sample 128 * (i + 1) of the last 8192.
- ``live.step.onnx``: ``new`` (batch, 128 * block_frames) samples and the state of the previous
  step, initially zeros -> ``probabilities`` (batch, heads, block_frames, 128) of the frames whose
  look-ahead is complete, and ``next_...`` for every state. Step j, from 0, returns the frames from
  ``block_frames * j + first_frame`` on; negative frames precede the stream. Networks without a
  filterbank have no such graph.

Frame f of a stream describes its sample 128 * f. Sample rate, heads, note tracker settings, shapes
of the state and the rest are in the metadata of both files and, for hosts that cannot read
metadata, in ``live.onnx.json`` and ``live.step.onnx.json``.
"""

import json
import logging
import sys
import warnings
from pathlib import Path
from typing import Any

import torch

from model.commands import documented_parser
from model.config import HOP
from model.onnx_graphs import StepGraph, WindowGraph
from model.storage import WeightsError, load, write_whole
from model.transcriber import FilterbankNetwork

try:
    import onnx
    import onnx_ir.passes.common as passes
    import onnxscript.optimizer
except ImportError as missing:
    sys.exit(f"{missing.name} is missing: pip install 'rse-transcribe[onnx]'")

OPSET = 20
LOOKAHEAD_HOPS = 9
BLOCK_FRAMES = 4
_ANY = 1 << 40  # elements of a folded tensor


def main(arguments: list[str] | None = None) -> int:
    parser = documented_parser("python -m model.export_onnx", __doc__)
    add = parser.add_argument
    add("weights", help="a shipped name, or a path to .safetensors")
    add("out", metavar="OUT.onnx", type=Path)
    ahead = "from a step's newest frame to the end of its audio (default: %(default)d)"
    add("--lookahead-hops", type=int, metavar="N", default=LOOKAHEAD_HOPS, help=ahead)
    frames = "frames of a step (default: %(default)d)"
    add("--block-frames", type=int, metavar="N", default=BLOCK_FRAMES, help=frames)
    options = parser.parse_args(arguments)
    out: Path = options.out
    logging.disable(logging.WARNING)  # torch.onnx suggests optional packages
    try:
        transcriber = load(options.weights, dtype=torch.float32)
        graphs: dict[Path, WindowGraph | StepGraph] = {out: WindowGraph(transcriber)}
        if isinstance(transcriber.network, FilterbankNetwork):
            step = StepGraph(transcriber, options.lookahead_hops, options.block_frames)
            graphs[out.with_suffix(f".step{out.suffix}")] = step
        for path, graph in graphs.items():
            model = exported(graph)
            data = model.SerializeToString()
            write_whole(path, data)
            write_whole(path.with_name(f"{path.name}.json"), json.dumps(facts(model)).encode())
            print(f"{path}: {len(data) / 1e6:.1f} MB")
    except (WeightsError, ValueError, OSError) as problem:
        print(f"error: {problem}", file=sys.stderr)
        return 1
    finally:
        logging.disable(logging.NOTSET)
    return 0


def facts(model: onnx.ModelProto) -> dict[str, Any]:
    """The metadata of an exported graph."""
    return {entry.key: json.loads(entry.value) for entry in model.metadata_props}


def exported(graph: WindowGraph | StepGraph) -> onnx.ModelProto:
    """A graph with all that a host needs to know of it and of the network."""
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
        warnings.simplefilter("ignore")  # about names within torch and its exporter
        program = torch.onnx.export(
            graph.eval(),
            tuple(graph.inputs.values()),
            input_names=names,
            output_names=["probabilities", *(f"next_{name}" for name in names[1:])],
            opset_version=OPSET,
            dynamo=True,
            dynamic_shapes=tuple({0: batch} for _ in names),
            # Its rewriting drops an addition of 1e-9 as if it were 0: silence would be infinite.
            optimize=False,
            verbose=False,
        )
    assert program is not None
    # Fold what depends on weights alone, after merging duplicates from shared weights.
    passes.CommonSubexpressionEliminationPass()(program.model)
    sizes = {"input_size_limit": _ANY, "output_size_limit": _ANY}
    onnxscript.optimizer.fold_constants(program.model, **sizes)
    onnxscript.optimizer.remove_unused_nodes(program.model)
    passes.ClearMetadataAndDocStringPass()(program.model)
    model = program.model_proto
    onnx.helper.set_model_props(model, {name: json.dumps(value) for name, value in about.items()})
    return model


if __name__ == "__main__":
    sys.exit(main())
