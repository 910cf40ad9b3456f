"""Graphs as ONNX models with their metadata, in 32-bit floats or with 8-bit matrix products."""

import json
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import torch

from model.config import HOP, WINDOW
from model.onnx.graphs import StepGraph, WindowGraph, step_graph
from model.transcriber import TranscriptionModel

try:
    import onnx
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
    return _export(WindowGraph(transcriber), inputs, ["probabilities"], {"samples": samples})


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
    about = {
        "lookahead_hops": lookahead_hops,
        "block_frames": block_frames,
        "first_frame": 1 - lookahead_hops,
        "state": shapes,
    }
    return _export(graph, inputs, ["probabilities", *(f"next_{name}" for name in shapes)], about)


def facts(model: onnx.ModelProto) -> dict[str, Any]:
    """The metadata of an exported graph."""
    return {entry.key: json.loads(entry.value) for entry in model.metadata_props}


def _export(
    graph: WindowGraph | StepGraph,
    inputs: dict[str, torch.Tensor],
    outputs: list[str],
    shapes: dict[str, Any],
) -> onnx.ModelProto:
    """A graph with all that a host needs to know, the network first, then ``shapes``."""
    config = graph.transcriber.config
    about = {
        "model": config.name,
        "sample_rate": config.sample_rate,
        "hop": HOP,
        "heads": config.heads,
        "tracker": graph.transcriber.card.get("tracker") or {},
    } | shapes
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
    # Fold what depends on weights alone, after merging duplicates from shared weights.
    passes.CommonSubexpressionEliminationPass()(program.model)
    sizes = {"input_size_limit": _ANY, "output_size_limit": _ANY}
    onnxscript.optimizer.fold_constants(program.model, **sizes)
    onnxscript.optimizer.remove_unused_nodes(program.model)
    passes.ClearMetadataAndDocStringPass()(program.model)
    model = program.model_proto
    onnx.helper.set_model_props(model, {name: json.dumps(value) for name, value in about.items()})
    return model


def quantised(model: onnx.ModelProto) -> onnx.ModelProto:
    """The same model with 8-bit integer matrix products."""
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder, "float.onnx"), Path(folder, "int8.onnx")
        onnx.save(model, source)
        quantization.quantize_dynamic(
            source,
            target,
            op_types_to_quantize=["MatMul", "Gemm"],
            per_channel=True,
            # Products of signed weights overflow on processors without VNNI.
            weight_type=quantization.QuantType.QUInt8,
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
