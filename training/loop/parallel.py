"""Training in several processes: ``torchrun --nproc-per-node 4 -m training.run ...``

Each process trains on its share of every batch and gradients are averaged (DDP; NCCL between GPUs,
gloo between CPUs), so the result is that of one process with the whole batch.

Lightning Fabric rather than accelerate: it needs no configuration file and no hub client.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, distributed

from training.arrays import I64

if TYPE_CHECKING:
    from lightning_fabric import Fabric

WAIT = timedelta(hours=2)  # for the first process, which validates and saves alone


@dataclass(frozen=True)
class Shard:
    """The part of every batch that one process trains."""

    index: int = 0
    count: int = 1

    def size(self, batch_size: int) -> int:
        """Examples per batch. Raises ValueError if the processes' shards would differ."""
        if batch_size % self.count:
            raise ValueError(f"{self.count} processes cannot share batches of {batch_size}")
        return batch_size // self.count

    def rows(self, batch_size: int) -> slice:
        """Their place in the batch. Raises ValueError as :meth:`size` does."""
        size = self.size(batch_size)
        return slice(self.index * size, (self.index + 1) * size)


WHOLE = Shard()


def is_first() -> bool:
    """Whether this process writes files: the only one or the first; valid before joining too."""
    return int(os.environ.get("RANK", "0")) == 0


def reduce(fabric: Fabric, values: Tensor, operation: str) -> list[float]:
    """The "mean" or "max" of every process's values, (count,)."""
    reduced = fabric.all_reduce(values, reduce_op=operation)
    assert isinstance(reduced, Tensor)
    return reduced.tolist()


def leave() -> None:
    """Leaves the group that ``make_fabric`` joined, once all its processes are done. If left to
    interpreter exit, gloo's threads occasionally abort the process."""
    if distributed.is_initialized():
        distributed.barrier()
        distributed.destroy_process_group()


def make_fabric() -> Fabric:
    """Joins the processes started by torchrun, one per GPU; otherwise one process, one device."""
    from lightning_fabric import Fabric  # takes seconds to import
    from lightning_fabric.strategies.ddp import DDPStrategy

    accelerator = "cuda" if torch.cuda.is_available() else "cpu"
    torch.backends.cudnn.benchmark = True  # all batches have one shape
    if distributed.is_torchelastic_launched():
        fabric = Fabric(
            accelerator=accelerator,
            strategy=DDPStrategy(timeout=WAIT),
            devices=int(os.environ["LOCAL_WORLD_SIZE"]),
            num_nodes=int(os.environ["GROUP_WORLD_SIZE"]),
        )
    else:
        fabric = Fabric(accelerator=accelerator, devices=1)
    fabric.launch()
    return fabric


def shuffled_rows(size: int, batch_size: int, step: int, *seed: int) -> I64:
    """The examples, of ``size``, in the batch at a step counted from 0: (batch_size,)."""
    places = range(step * batch_size, (step + 1) * batch_size)
    return np.array([_order(size, *seed, place // size)[place % size] for place in places])


@lru_cache(16)
def _order(size: int, *seed: int) -> I64:
    return np.random.default_rng(seed).permutation(size)
