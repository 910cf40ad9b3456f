"""The paper's claims of speed, measured here: ``python -m training.evaluation.speed``.

Prints how many times as fast residual switch units (RSE) are as the gated ones of the original
network (SE), with the paper's 384 features, and as one layer of attention of the same 192 features
by torch's fused kernels; and how long the paper's MusicNet network takes for two million samples.
All in the fastest number format, two Beneš blocks, one sequence at a time, without an optimiser.
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
PAPERS = {"training": "4", "inference": "2"}  # times as fast as SE


class Attention(nn.MultiheadAttention):
    """One layer of self-attention with its projections: (batch, n, maps) -> the same shape."""

    def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]
        return super().forward(x, x, x, need_weights=False)[0]


def network(unit: str, maps: int) -> ResidualShuffleExchange:
    """Two Beneš blocks of "residual" or "gated" units."""
    return ResidualShuffleExchange(RSEConfig(maps=maps, blocks=2, dropout=0.0, unit=unit))  # type: ignore[arg-type]


def seconds(network: nn.Module, use: str, *shape: int) -> float:
    """The median of five passes after one that warms up, of one pass if it takes a second."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    dtype = fastest_dtype(device)
    network.to(device, dtype)
    x = torch.randn(1, *shape, device=device).mul_(0.25).to(dtype)

    def step() -> float:
        began = time.perf_counter()
        with torch.inference_mode(use == "inference"):
            out = network.raw(x) if isinstance(network, StridedNetwork) else network(x)
            if use == "training":
                out.square().mean().backward()
        if device.type == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter() - began

    step()
    first = step()
    return first if first > 1 else statistics.median([first, *(step() for _ in range(4))])


def table(
    wide: int, maps: int, lengths: tuple[int, ...], longer: tuple[int, ...], samples: int
) -> str:
    """The claims as Markdown. wide, maps: features beside SE and beside attention, at these
    lengths."""
    attention = Attention(maps, max(1, maps // HEAD), batch_first=True)
    rivals = (
        ("SE", wide, lengths, network("gated", wide)),
        ("a layer of attention", maps, longer, attention),
    )
    lines = ["| claim | paper | here |", "|---|---:|---:|"]
    bar = tqdm([(use, rival) for rival in rivals for use in PAPERS])
    for use, (name, features, at, rival) in bar:
        ours = network("residual", features)
        found = ", ".join(
            f"{seconds(rival, use, n, features) / seconds(ours, use, n, features):.1f} ({n:,})"
            for n in at
        )
        paper = PAPERS[use] if name == "SE" else "-"
        lines.append(f"| {use}: RSE times as fast as {name} (length) | {paper} | {found} |")
    took = f"{seconds(TranscriptionModel(PAPER).network, 'inference', samples):.1f} s"
    lines.append(f"| {samples:,} samples through the MusicNet network | 3.97 s for 2 M | {took} |")
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    documented_parser("training.evaluation.speed", __doc__).parse_args(arguments)
    print(table(384, PAPER.rse.maps, SE_LENGTHS, ATTENTION_LENGTHS, SAMPLES))
    return 0


if __name__ == "__main__":
    sys.exit(main())
