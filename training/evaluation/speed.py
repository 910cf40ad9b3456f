"""The paper's claims of speed, measured here: ``python -m training.evaluation.speed --out DIR``.

Prints a table and draws DIR/speed.png. Residual switch units (RSE) beside the gated ones of the
original network (SE) with the paper's 384 features; RSE beside one layer of attention of the same
192 features, by length, once with torch's fused kernels and once with all n x n weights in memory
as in the paper's time; and the paper's MusicNet network on two million samples. All in the fastest
number format, two Beneš blocks, one sequence at a time, without an optimiser. Every measurement is
a process of its own with 11 GB of memory, that of the paper's GPU. Lengths double until memory or
patience ends.
"""

import multiprocessing
import resource
import statistics
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import NamedTuple

import torch
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from model.commands import documented_parser
from model.config import PAPER, RSEConfig
from model.rse import ResidualShuffleExchange
from model.storage import fastest_dtype
from model.transcriber import StridedNetwork, TranscriptionModel

MEMORY_GB = 11.0  # of the paper's GPU, an RTX 2080 Ti
HEAD = 64  # features of an attention head
SHORTEST, LONGEST = 1 << 10, 1 << 18
PATIENCE_S = 30.0  # a length that would take longer is not tried
UNITS = {"RSE": "residual", "SE": "gated"}
FUSED = SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.CUDNN_ATTENTION
ATTENTION = {"attention": [*FUSED, SDPBackend.MATH], "attention, n x n": [SDPBackend.MATH]}
USES = ("inference", "training")
MILLIONS = "2 M samples"
OUT_OF_MEMORY = "memory", "alloc", "primitive"  # words of torch's and oneDNN's errors
COMPARED = (256, 1024, 4096)  # lengths of RSE beside SE
PAPERS = {"training": "4", "inference": "2"}  # times as fast as SE


class Job(NamedTuple):
    """One measurement."""

    network: str
    use: str
    maps: int
    length: int


class Taken(NamedTuple):
    """What it took; ``seconds`` is None if the memory did not suffice."""

    seconds: float | None
    peak_gb: float = 0.0


class Attention(nn.Module):
    """One layer of self-attention with its projections."""

    def __init__(self, maps: int, backends: list[SDPBackend]) -> None:
        super().__init__()
        self.inward, self.outward = nn.Linear(maps, 3 * maps), nn.Linear(maps, maps)
        self.heads, self.backends = max(1, maps // HEAD), backends

    def forward(self, x: Tensor) -> Tensor:
        """x: (batch, n, maps) -> the same shape."""
        parts = self.inward(x).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        with sdpa_kernel(self.backends):
            mixed = nn.functional.scaled_dot_product_attention(*parts)
        out: Tensor = self.outward(mixed.transpose(1, 2).flatten(2))
        return out


def build(job: Job) -> tuple[nn.Module, tuple[int, ...]]:
    """The network and the shape of its input."""
    if job.network == MILLIONS:
        network = TranscriptionModel(PAPER).network
        assert isinstance(network, StridedNetwork)
        return network, (1, job.length)
    shape = (1, job.length, job.maps)
    if job.network in ATTENTION:
        return Attention(job.maps, ATTENTION[job.network]), shape
    config = RSEConfig(maps=job.maps, blocks=2, dropout=0.0, unit=UNITS[job.network])  # type: ignore[arg-type]
    return ResidualShuffleExchange(config), shape


def measure(job: Job) -> Taken:
    """Median time and peak memory in this process, after a short warm-up."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if device.type == "cuda":
        whole = torch.cuda.get_device_properties(device).total_memory
        torch.cuda.set_per_process_memory_fraction(min(1.0, MEMORY_GB * 1e9 / whole))
    else:
        resource.setrlimit(resource.RLIMIT_DATA, (int(MEMORY_GB * 1e9),) * 2)
    dtype = fastest_dtype(device)
    network, shape = build(job)
    network.to(device, dtype)
    run: Callable[[Tensor], Tensor] = (
        network.raw if isinstance(network, StridedNetwork) else network
    )

    def step(length: int) -> float:
        x = torch.randn(shape[0], length, *shape[2:], device=device).mul_(0.25).to(dtype)
        began = time.perf_counter()
        with torch.inference_mode(job.use == "inference"):
            out = run(x)
            if job.use == "training":
                out.square().mean().backward()
        if device.type == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter() - began

    try:
        step(min(job.length, SHORTEST))
        first = step(job.length)
        taken = [first, *(step(job.length) for _ in range(4 if first < 1 else 0))]
    except MemoryError:
        return Taken(None)
    except RuntimeError as error:
        if not any(word in str(error) for word in OUT_OF_MEMORY):
            raise
        return Taken(None)
    if device.type == "cuda":
        peak = torch.cuda.max_memory_allocated() / 1e9
    else:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9
    return Taken(statistics.median(taken), peak)


def measured(job: Job) -> Taken:
    """As :func:`measure`, in a process of its own."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("fork")) as pool:
        try:
            taken = pool.submit(measure, job).result()
        except BrokenProcessPool:  # a library that cannot do without what it was refused
            taken = Taken(None)
    took = "out of memory" if taken.seconds is None else f"{taken.seconds:.3f} s"
    print(f"{job.network}, {job.use}, {job.length:,}: {took}", file=sys.stderr)
    return taken


Sweep = dict[int, Taken]


def sweep(network: str, use: str, maps: int, longest: int) -> Sweep:
    """By length, until the memory does not suffice or the next one would take too long."""
    found: Sweep = {}
    length, growth = SHORTEST, 4 if network in ATTENTION else 2.3
    while length <= longest:
        taken = found[length] = measured(Job(network, use, maps, length))
        if taken.seconds is None or taken.seconds * growth > PATIENCE_S:
            break
        length *= 2
    return found


def ending(found: Sweep) -> str:
    """Why a sweep ended where it did."""
    last = max(found)
    if found[last].seconds is None:
        return f"out of memory at {last:,}"
    return f"{found[last].peak_gb:.1f} GB at {last:,}, not tried beyond"


def crossing(one: Sweep, other: Sweep) -> str:
    """From which length on the first is faster."""
    both = [n for n in one if n in other and one[n].seconds and other[n].seconds]
    slower = [n for n in both if (one[n].seconds or 0) >= (other[n].seconds or 0)]
    faster = [n for n in both if n > max(slower, default=0)]
    return f"from {min(faster):,} on" if faster else f"not up to {max(both):,}"


def times_as_fast(use: str, maps: int, length: int) -> str:
    """RSE beside SE."""
    rse, se = (measured(Job(unit, use, maps, length)).seconds for unit in UNITS)
    return f"{se / rse:.1f} ({length:,})" if rse and se else f"- ({length:,})"


def claims(
    ratios: dict[str, list[str]],
    sweeps: dict[tuple[str, str], Sweep],
    millions: Taken,
    samples: int,
) -> str:
    """The claims as Markdown."""
    took = f"{millions.seconds:.1f} s" if millions.seconds else "out of memory"
    rows = [
        (f"{use}: RSE times as fast as SE (length)", PAPERS[use], ", ".join(found))
        for use, found in ratios.items()
    ]
    rows.append((f"{samples:,} samples through the MusicNet network", "3.97 s for 2 M", took))
    for name in ATTENTION:
        for use in USES:
            faster = crossing(sweeps["RSE", use], sweeps[name, use])
            rows.append((f"{use}: RSE faster than a layer of {name}", "-", faster))
    for (name, use), found in sweeps.items():
        rows.append((f"{use}: {name}, {MEMORY_GB:g} GB", "-", ending(found)))
    lines = ["| claim | paper | here |", "|---|---:|---:|"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])


def draw(sweeps: dict[tuple[str, str], Sweep], path: Path) -> None:
    """Time by length, on logarithmic axes; a cross where the memory did not suffice."""
    figure = Figure(figsize=(9.6, 4.0), layout="constrained")
    for axes, use in zip(figure.subplots(1, 2), USES, strict=True):
        for (name, of), found in sweeps.items():
            points = [(n, t.seconds) for n, t in found.items() if t.seconds]
            if of != use or not points:
                continue
            (line,) = axes.plot(*zip(*points, strict=True), marker="o", label=name)
            failed = [n for n, t in found.items() if t.seconds is None]
            axes.plot(failed, [points[-1][1]] * len(failed), "x", color=line.get_color(), ms=9)
        axes.set(xlabel="length", ylabel="seconds", title=use, yscale="log")
        axes.set_xscale("log", base=2)
        axes.grid(alpha=0.3)
        axes.legend()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)


def main(arguments: list[str] | None = None) -> int:
    parser = documented_parser("training.evaluation.speed", __doc__)
    parser.add_argument("--out", type=Path, help="folder for the picture")
    parser.add_argument("--quick", action="store_true", help="small sizes, to try the command")
    options = parser.parse_args(arguments)
    wide, maps = (16, 8) if options.quick else (384, PAPER.rse.maps)
    longest, samples = (2 * SHORTEST, 1 << 12) if options.quick else (LONGEST, 1 << 21)
    lengths = COMPARED[:1] if options.quick else COMPARED
    ratios = {use: [times_as_fast(use, wide, n) for n in lengths] for use in reversed(USES)}
    networks = ("RSE", *ATTENTION)
    sweeps = {(n, use): sweep(n, use, maps, longest) for use in USES for n in networks}
    millions = measured(Job(MILLIONS, "inference", PAPER.rse.maps, samples))
    print(claims(ratios, sweeps, millions, samples))
    if options.out:
        draw(sweeps, options.out / "speed.png")
    return 0


if __name__ == "__main__":
    sys.exit(main())
