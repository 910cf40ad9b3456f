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

import json
import logging
import sys
from pathlib import Path

import torch

from model.commands import documented_parser
from model.onnx.export import (
    BLOCK_FRAMES,
    LOOKAHEAD_HOPS,
    facts,
    largest_change,
    quantised,
    step_model,
    window_model,
)
from model.storage import WeightsError, load, write_whole


def main(arguments: list[str] | None = None) -> int:
    parser = documented_parser("python -m model.export_onnx", __doc__)
    add = parser.add_argument
    add("weights", help="a shipped name, or a path to .safetensors")
    add("out", metavar="OUT.onnx", type=Path)
    add("--quantise", action="store_true", help="8-bit matrix products; prints the error")
    ahead = "from a step's newest frame to the end of its audio (default: %(default)d)"
    add("--lookahead-hops", type=int, metavar="N", default=LOOKAHEAD_HOPS, help=ahead)
    frames = "frames of a step (default: %(default)d)"
    add("--block-frames", type=int, metavar="N", default=BLOCK_FRAMES, help=frames)
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
