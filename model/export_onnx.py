"""A transcription network as ONNX: ``python -m model.export_onnx live live.onnx [--quantise]``.

Writes two graphs with a free batch axis, for hosts without torch:

- ``live.onnx``: ``windows`` (batch, samples) at the model's rate -> ``probabilities`` (batch,
  heads, 63, 128); frame i describes sample 128 * (i + 1) of the last 8192.
- ``live.step.onnx``: ``new`` (batch, 128 * block_frames) samples and the state of the previous
  step, initially zeros -> ``probabilities`` (batch, heads, block_frames, 128) of the frames whose
  look-ahead is complete, and ``next_...`` for every state. Step j, from 0, returns the frames from
  ``block_frames * j + first_frame`` on; negative frames precede the stream.

Frame f of a stream describes its sample 128 * f. Sample rate, heads, note tracker settings, shapes
of the state and the rest are in the metadata of both files and, for hosts that cannot read
metadata, in ``live.onnx.json`` and ``live.step.onnx.json``.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import torch

from model.config import HOP, WINDOW
from model.graphs import WindowGraph, step_graph
from model.storage import WeightsError, load, write_whole
from model.transcriber import TranscriptionModel

try:
    import onnx
    import onnx_ir
    import onnx_ir.passes.common as passes
    import onnxruntime
    import onnxscript.optimizer
    from onnxruntime import quantization
except ImportError as missing:
    sys.exit(f"{missing.name} is missing: pip install 'rse-transcribe[onnx]'")

OPSET = 20
LOOKAHEAD_HOPS = 9
BLOCK_FRAMES = 4
_ANY = 1 << 40  # elements of a folded tensor
_TRIED_WINDOWS = 16  # of noise, to measure the error of quantisation


def window_model(transcriber: TranscriptionModel) -> onnx.ModelProto:
    """The network on whole windows, (batch, context + WINDOW)."""
    samples = transcriber.config.context + WINDOW
    inputs = {"windows": torch.zeros(2, samples)}
    about = _metadata(transcriber) | {"samples": samples}
    return _export(WindowGraph(transcriber), inputs, ["probabilities"], about)


def step_model(
    transcriber: TranscriptionModel,
    lookahead_hops: int = LOOKAHEAD_HOPS,
    block_frames: int = BLOCK_FRAMES,
) -> onnx.ModelProto:
    """A step of a stream. Raises ValueError if look-ahead and block exceed a window."""
    graph = step_graph(transcriber, lookahead_hops, block_frames)
    shapes = graph.state_shapes
    inputs = {"new": torch.zeros(2, HOP * block_frames)}
    inputs |= {name: torch.zeros(2, *shape) for name, shape in shapes.items()}
    about = _metadata(transcriber) | {
        "lookahead_hops": lookahead_hops,
        "block_frames": block_frames,
        "first_frame": 1 - lookahead_hops,
        "state": shapes,
    }
    return _export(graph, inputs, ["probabilities", *(f"next_{name}" for name in shapes)], about)


def _metadata(transcriber: TranscriptionModel) -> dict[str, Any]:
    """What a host needs to know about the network, ready for JSON."""
    config = transcriber.config
    return {
        "model": config.name,
        "sample_rate": config.sample_rate,
        "hop": HOP,
        "heads": config.heads,
        "tracker": transcriber.card.get("tracker") or {},
    }


def facts(model: onnx.ModelProto) -> dict[str, Any]:
    """The metadata of an exported graph."""
    return {entry.key: json.loads(entry.value) for entry in model.metadata_props}


def _export(
    graph: torch.nn.Module,
    inputs: dict[str, torch.Tensor],
    outputs: list[str],
    about: dict[str, Any],
) -> onnx.ModelProto:
    batch = torch.export.Dim("batch")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about names within torch and its exporter
        program = torch.onnx.export(
            graph.eval(),
            tuple(inputs.values()),
            input_names=list(inputs),
            output_names=outputs,
            opset_version=OPSET,
            dynamo=True,
            dynamic_shapes=tuple({0: batch} for _ in inputs),
            # Its rewriting drops an addition of 1e-9 as if it were 0: silence would be infinite.
            optimize=False,
            verbose=False,
        )
    assert program is not None
    _simplify(program.model)
    model = program.model_proto
    onnx.helper.set_model_props(model, {name: json.dumps(value) for name, value in about.items()})
    return model


def _simplify(model: onnx_ir.Model) -> None:
    """Folds what depends on weights alone, after merging duplicates from shared weights."""
    passes.CommonSubexpressionEliminationPass()(model)
    onnxscript.optimizer.fold_constants(model, input_size_limit=_ANY, output_size_limit=_ANY)
    onnxscript.optimizer.remove_unused_nodes(model)
    passes.ClearMetadataAndDocStringPass()(model)


def quantised(model: onnx.ModelProto) -> onnx.ModelProto:
    """The same model with 8-bit integer matrix products."""
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder, "float.onnx"), Path(folder, "int8.onnx")
        onnx.save(model, source)
        quantization.quantize_dynamic(
            source, target, op_types_to_quantize=["MatMul", "Gemm"], per_channel=True
        )
        small = onnx.load(target)
    del small.metadata_props[:]  # which the quantiser writes to, not in JSON
    small.metadata_props.extend(model.metadata_props)
    return small


def largest_change(before: onnx.ModelProto, after: onnx.ModelProto) -> float:
    """The largest change of a probability between two window graphs, on noise from -80 to 0 dB."""
    (windows,) = before.graph.input
    samples = windows.type.tensor_type.shape.dim[1].dim_value
    noise = torch.randn(_TRIED_WINDOWS, samples, generator=torch.Generator().manual_seed(0))
    noise *= torch.logspace(-4, 0, _TRIED_WINDOWS)[:, None]
    first, second = (
        onnxruntime.InferenceSession(model.SerializeToString()).run(
            None, {"windows": noise.numpy()}
        )
        for model in (before, after)
    )
    return float(abs(first[0] - second[0]).max())


def main(arguments: list[str] | None = None) -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="model.export_onnx",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("weights", help="a shipped name, or a path to .safetensors")
    parser.add_argument("out", metavar="OUT.onnx", type=Path)
    parser.add_argument(
        "--quantise", action="store_true", help="8-bit matrix products; prints the error"
    )
    parser.add_argument(
        "--lookahead-hops",
        type=int,
        default=LOOKAHEAD_HOPS,
        help="from a step's newest frame to the end of its audio (default: %(default)d)",
    )
    parser.add_argument(
        "--block-frames",
        type=int,
        default=BLOCK_FRAMES,
        help="frames of a step (default: %(default)d)",
    )
    options = parser.parse_args(arguments)
    out: Path = options.out
    logging.disable(logging.WARNING)  # torch.onnx and onnxruntime suggest optional packages
    try:
        transcriber = load(options.weights, dtype=torch.float32)
        models = {
            out: window_model(transcriber),
            out.with_suffix(f".step{out.suffix}"): step_model(
                transcriber, options.lookahead_hops, options.block_frames
            ),
        }
        error = ""
        if options.quantise:
            exact = models[out]
            models = {path: quantised(model) for path, model in models.items()}
            change = largest_change(exact, models[out])
            error = f"; 8 bits change probabilities by at most {change:.3f}"
        for path, model in models.items():
            data = model.SerializeToString()
            write_whole(path, data)
            write_whole(path.with_name(f"{path.name}.json"), json.dumps(facts(model)).encode())
            print(f"{path}: {len(data) / 1e6:.1f} MB{error}")
    except (WeightsError, ValueError, OSError) as problem:
        print(f"error: {problem}", file=sys.stderr)
        return 1
    finally:
        logging.disable(logging.NOTSET)
    return 0


if __name__ == "__main__":
    sys.exit(main())
