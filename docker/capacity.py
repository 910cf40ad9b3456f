"""Computes what docker/CAPACITY.md derives from its inputs, in place: `python docker/capacity.py`.

The sheet's own tables of inputs and of machines are read; what stands below its mark is written
anew. Every derived number is an extrapolation and is called so there.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import ceil
from pathlib import Path

SHEET = Path(__file__).with_name("CAPACITY.md")
NGINX = Path(__file__).with_name("nginx.conf")
MARK = "<!-- From here on by `python docker/capacity.py`. -->\n"
MANY = 100_000


@dataclass(frozen=True, slots=True)
class Machine:
    """One row of the sheet's machines."""

    name: str
    vcpus: float
    gpus: float
    tflops: float
    """Of one GPU: dense bfloat16."""
    usd_an_hour: float


@dataclass(frozen=True, slots=True)
class Capacity:
    """What one machine carries."""

    by_cores: float
    """Streams that its cores could bear; with a GPU, of the work beside the model."""
    by_gpus: float | None
    """Streams that the model's arithmetic on its GPUs could bear."""
    streams: int
    """Fewer than either, by the load that is aimed at."""
    processes: int

    @property
    def first(self) -> str:
        """What saturates first."""
        if self.by_gpus is None:
            return "cores: the model"
        return "cores: beside the model" if self.by_cores < self.by_gpus else "GPU"


def inputs(sheet: str) -> dict[str, float]:
    """The values of the table of inputs, by name."""
    return {row[0].strip("`"): float(row[1]) for row in _table(sheet, "input")}


def machines(sheet: str) -> list[Machine]:
    """The rows of the table of machines."""
    return [Machine(row[0], *map(float, row[1:5])) for row in _table(sheet, "machine")]


def capacity(machine: Machine, given: dict[str, float]) -> Capacity:
    """Args:
    given: see `inputs`.
    """
    cores = machine.vcpus * given["vcpu_yield"]
    per_core = given["streams"] / given["cores"]  # with the model on the cores
    beside = 1000 / given["host_core_ms"]  # with the model elsewhere
    if not machine.gpus:
        by_cores = cores * per_core
        streams = int(by_cores * given["target_load"])
        return Capacity(by_cores, None, streams, ceil(cores / given["cores"]))
    work = given["window_gflop"] * 1e9 * given["windows_a_second"]  # FLOP a second, a stream
    by_gpus = machine.gpus * machine.tflops * 1e12 * given["fraction_of_peak"] / work
    by_cores = cores * beside
    streams = int(min(by_cores, by_gpus) * given["target_load"])
    # The loop of a process is one core's.
    alone = beside * given["vcpu_yield"] * given["target_load"]
    return Capacity(by_cores, by_gpus, streams, ceil(streams / alone))


def derived(sheet: str) -> str:
    """The part of the sheet that follows from the rest of it."""
    given = inputs(sheet)
    rows, many = [], []
    for machine in machines(sheet):
        found = capacity(machine, given)
        cost = machine.usd_an_hour * 1000 / found.streams
        by_gpus = "" if found.by_gpus is None else f"{found.by_gpus:.0f}"
        rows.append(
            f"| {machine.name} | {found.by_cores:.0f} | {by_gpus} | {found.first} "
            f"| {found.streams} | {found.processes} | {cost:.2f} |"
        )
        count = ceil(MANY / found.streams)
        memory_gb = count * found.processes * given["process_mb"] / 1000
        many.append(
            f"| {machine.name} | {count} | {count * found.processes} | {memory_gb:.0f} "
            f"| {count * machine.usd_an_hour:.0f} |"
        )
    per_core = given["streams"] / given["cores"]
    connections = int(re.findall(r"worker_connections (\d+);", NGINX.read_text("utf-8"))[0])
    workers = ceil(MANY / (connections // 2))
    gbit = MANY * given["stream_kbit"] / 1e6
    share = 100 * per_core * given["host_core_ms"] / 1000
    lines = [
        "## One machine (extrapolated)",
        "",
        f"Measured: {per_core:g} streams a core with the model on it, of which {share:.0f} % of "
        "the core are for what is beside the model.",
        "",
        "| machine | limit of its cores | of its GPUs | saturates first | streams, at the target "
        "load | processes | USD an hour for 1,000 streams |",
        "|---|---|---|---|---|---|---|",
        *rows,
        "",
        f"## {MANY:,} streams (extrapolated)",
        "",
        "| machine | machines | processes | memory, GB (but for CUDA) | USD an hour |",
        "|---|---|---|---|---|",
        *many,
        "",
        f"Audio that comes in: {gbit:.0f} Gbit/s. Workers of nginx at two connections a stream: "
        f"{workers}.",
        "",
    ]
    return "\n".join(lines)


def renewed(sheet: str) -> str:
    """The sheet with its derived part computed."""
    above, mark, _ = sheet.partition(MARK)
    if not mark:
        raise ValueError(f"{SHEET.name} has lost the line {MARK!r}")
    return above + mark + "\n" + derived(above)


def _table(sheet: str, head: str) -> list[list[str]]:
    """Cells of the rows of the table whose first column is called `head`."""
    rows: list[list[str]] = []
    inside = False
    for line in sheet.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith(f"| {head} |"):
            inside = True
        elif not line.startswith("|"):
            inside = False
        elif inside and not line.startswith("|---"):
            rows.append(cells)
    return rows


if __name__ == "__main__":
    SHEET.write_text(renewed(SHEET.read_text("utf-8")), "utf-8")
