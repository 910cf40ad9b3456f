"""Measures the paper's speed claims on this machine: ``python -m training.evaluation.speed``.

A network of residual switch units (RSE) is compared with two baselines. One is the original
network of gated units (SE), with 384 features as in the paper. The other is one layer of attention
(torch's fused kernels), with 192 features. The paper's MusicNet network also transcribes two
million samples. All networks have two Beneš blocks, use the fastest number format and process one
sequence at a time. Training steps are measured without an optimiser.
"""

import statistics
import sys
import time

import torch
from torch import Tensor, nn
from tqdm import tqdm

from model.commands import documented_parser
from model.config import PAPER, RSEConfig
from model.rse import ResidualShuffleExchange
from model.storage import fastest_dtype
from model.transcriber import StridedNetwork, TranscriptionModel

HEAD = 64  # features of an attention head
SE_LENGTHS, ATTENTION_LENGTHS, SAMPLES = (256, 1024, 4096), (4096, 16_384, 65_536), 1 << 21
PAPER_SPEEDUPS = {"training": "4", "inference": "2"}  # RSE compared with SE


class Attention(nn.MultiheadAttention):
    """One layer of self-attention with its projections: [batch, n, maps] to [batch, n, maps]."""

    def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]
        return super().forward(x, x, x, need_weights=False)[0]


def network(unit: str, maps: int) -> ResidualShuffleExchange:
    """Return a network of two Beneš blocks with "residual" or "gated" units."""
    return ResidualShuffleExchange(RSEConfig(maps=maps, blocks=2, dropout=0.0, unit=unit))  # type: ignore[arg-type]


def seconds(network: nn.Module, use: str, *shape: int) -> float:
    """Return the median time of five passes after a warm-up. If the first pass takes more than a
    second, return its time. use: "training" or "inference"."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    dtype = fastest_dtype(device)
    network.to(device, dtype).train(use == "training")
    x = torch.randn(1, *shape, device=device).mul_(0.25).to(dtype)

    def step() -> float:
        start = time.perf_counter()
        with torch.inference_mode(use == "inference"):
            out = network.raw(x) if isinstance(network, StridedNetwork) else network(x)
            if use == "training":
                out.square().mean().backward()
        if device.type == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter() - start

    step()
    first = step()
    return first if first > 1 else statistics.median([first, *(step() for _ in range(4))])


def table(
    wide: int, maps: int, lengths: tuple[int, ...], longer: tuple[int, ...], samples: int
) -> str:
    """Return a Markdown table of the claims and the measurements.

    Args:
        wide, lengths: number of features and sequence lengths for the comparison with SE.
        maps, longer: number of features and sequence lengths for the comparison with attention.
        samples: length of the input of the MusicNet network.
    """
    attention = Attention(maps, max(1, maps // HEAD), batch_first=True)
    baselines = (
        ("SE", wide, lengths, network("gated", wide)),
        ("a layer of attention", maps, longer, attention),
    )
    lines = ["| claim | paper | here |", "|---|---:|---:|"]
    bar = tqdm([(use, baseline) for baseline in baselines for use in PAPER_SPEEDUPS])
    for use, (name, features, sizes, baseline) in bar:
        rse = network("residual", features)
        speedups = ", ".join(
            f"{seconds(baseline, use, n, features) / seconds(rse, use, n, features):.1f} ({n:,})"
            for n in sizes
        )
        paper = PAPER_SPEEDUPS[use] if name == "SE" else "-"
        lines.append(f"| {use}: speed of RSE relative to {name} (length) | {paper} | {speedups} |")
    elapsed = f"{seconds(TranscriptionModel(PAPER).network, 'inference', samples):.1f} s"
    lines.append(
        f"| {samples:,} samples through the MusicNet network | 3.97 s for 2 M | {elapsed} |"
    )
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    documented_parser("training.evaluation.speed", __doc__).parse_args(arguments)
    print(table(384, PAPER.rse.maps, SE_LENGTHS, ATTENTION_LENGTHS, SAMPLES))
    return 0


if __name__ == "__main__":
    sys.exit(main())
