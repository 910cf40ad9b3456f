"""The training loop: one small loop for every task.

A task brings the network, an endless stream of batches, a loss and a validation; the loop brings
the optimiser, the schedule, averaging of weights, checkpoints, metrics and the clock.
"""

from __future__ import annotations

import contextlib
import json
import logging
import math
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

import torch
from torch import Tensor, nn
from tqdm import tqdm

from model.checkpoint import read_tensors, save_checkpoint, write_whole
from training.released_optim import ReleasedRAdam, released_groups, released_rate

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class LoopConfig:
    """How long, how fast, how often."""

    minutes: float = 0.0
    """Length of the whole schedule in minutes of training; 0 counts `steps` instead."""
    steps: int = 20_000
    """Length of the whole schedule in optimiser steps, where `minutes` is 0."""
    max_minutes: float = 0.0
    """Stop this slice after so many minutes and save, to go on with `resume`; 0 never stops."""
    learning_rate: float = 2e-3
    """At its peak."""
    warmup: float = 0.02
    """Part of the schedule over which the rate rises from zero; then it falls linearly to zero."""
    weight_decay: float = 0.01
    optimizer: Literal["radam", "released"] = "radam"
    """"released": the released code's variant, which clips by itself and has no warm-up."""
    gradient_clip: float = 5.0
    """Largest norm of the gradient over all parameters; 0 leaves it as it is."""
    average: float = 0.999
    """Decay of the running average of the weights that is validated and saved; 0 for none."""
    validate_minutes: float = 10.0
    """Between validations and checkpoints."""
    log_steps: int = 50
    bfloat16: bool = True
    """Autocast the forward pass."""
    seed: int = 1


class Task(Protocol):
    """What the loop needs to know of a task."""

    network: nn.Module
    score: str
    """The metric of `validate` that chooses the best checkpoint; higher is better."""

    def batches(self, seed: int) -> contextlib.AbstractContextManager[Iterator[Any]]:
        """An endless stream of batches."""
        ...

    def loss(self, batch: Any) -> tuple[Tensor, Mapping[str, Tensor]]:
        """Loss and its parts."""
        ...

    def validate(self, network: nn.Module) -> dict[str, float]:
        """Metrics of a network (the average of the weights)."""
        ...

    def card(self) -> dict[str, Any]:
        """What the checkpoint says of itself: configuration, data, licences."""
        ...


class Trainer:
    """Trains a task into a folder: last and best checkpoint, optimiser state, metrics."""

    def __init__(self, task: Task, config: LoopConfig, folder: Path) -> None:
        self.task, self.config, self.folder = task, config, folder
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        task.network.to(self.device)
        self.optimizer = make_optimizer(task.network, config)
        self.average = torch.optim.swa_utils.AveragedModel(
            task.network,
            multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(config.average),
            use_buffers=True,
        )
        self.step = 0
        self.seconds = 0.0  # of training so far, over all slices
        self.best = -math.inf

    @property
    def progress(self) -> float:
        """Part of the schedule that is done, 0 ... 1."""
        if self.config.minutes:
            return min(1.0, self.seconds / (60 * self.config.minutes))
        return min(1.0, self.step / self.config.steps)

    @property
    def learning_rate(self) -> float:
        """Of the next step."""
        config = self.config
        if config.optimizer != "released":
            return config.learning_rate * schedule(self.progress, config.warmup)
        if config.minutes:
            return config.learning_rate * schedule(self.progress, 0)
        return config.learning_rate * released_rate(self.step + 1, config.steps)

    def resume(self) -> None:
        """Continues from the folder's last checkpoint. Raises OSError if there is none."""
        state = torch.load(self.folder / "state.pt", weights_only=True, map_location=self.device)
        self.task.network.load_state_dict(state["network"])
        self.average.load_state_dict(state["average"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.step, self.seconds, self.best = state["step"], state["seconds"], state["best"]
        torch.set_rng_state(state["random"].cpu())

    def run(self) -> dict[str, float]:
        """Trains to the end of the schedule or of this slice; returns the last metrics."""
        config = self.config
        torch.manual_seed(config.seed + self.step)
        slice_end = self.seconds + 60 * config.max_minutes if config.max_minutes else math.inf
        next_validation = self.seconds + 60 * config.validate_minutes
        metrics: dict[str, float] = {}
        bar = tqdm(total=1.0, bar_format="{l_bar}{bar}| {elapsed}<{remaining} {postfix}")
        with self.task.batches(config.seed + self.step) as batches, bar:
            try:
                while self.progress < 1 and self.seconds < slice_end:
                    began = time.monotonic()
                    loss, parts = self.train_step(next(batches))
                    self.seconds += time.monotonic() - began
                    if self.step % config.log_steps == 0:
                        self.log("train", {"loss": float(loss), **_floats(parts)})
                        bar.n = self.progress
                        rate = self.step / max(1e-9, self.seconds)
                        bar.set_postfix_str(f"loss {float(loss):.4f} {rate:.2f} steps/s")
                    if self.seconds >= next_validation:
                        metrics = self.checkpoint()
                        next_validation = self.seconds + 60 * config.validate_minutes
            except KeyboardInterrupt:
                logger.warning("interrupted at step %d; saving", self.step)
        return self.checkpoint() or metrics

    def train_step(self, batch: Any) -> tuple[Tensor, Mapping[str, Tensor]]:
        """One optimiser step: backward, clip, step, zero."""
        network = self.task.network.train()
        for group in self.optimizer.param_groups:
            group["lr"] = self.learning_rate
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.config.bfloat16):
            loss, parts = self.task.loss(batch)
        if not torch.isfinite(loss):
            raise FloatingPointError(f"the loss is {loss.item()} at step {self.step}")
        loss.backward()
        if self.config.gradient_clip and self.config.optimizer != "released":
            nn.utils.clip_grad_norm_(network.parameters(), self.config.gradient_clip)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.step += 1
        self.average.update_parameters(network)
        return loss.detach(), parts

    def checkpoint(self) -> dict[str, float]:
        """Validates the averaged weights and saves last, best and optimiser state."""
        network = self.average.module.eval()
        metrics = self.task.validate(network)
        self.log("validation", metrics)
        card = {
            **self.task.card(),
            "training": {
                "loop": asdict(self.config),
                "steps": self.step,
                "hours": round(self.seconds / 3600, 3),
            },
            "validation": metrics,
        }
        save_checkpoint(network, card, self.folder / "last.safetensors")
        score = metrics[self.task.score]
        if score > self.best:
            self.best = score
            save_checkpoint(network, card, self.folder / "best.safetensors")
        state = {
            "network": self.task.network.state_dict(),
            "average": self.average.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "step": self.step,
            "seconds": self.seconds,
            "best": self.best,
            "random": torch.get_rng_state(),
        }
        partial = self.folder / "state.pt.partial"
        torch.save(state, partial)
        partial.replace(self.folder / "state.pt")
        return metrics

    def log(self, kind: str, values: Mapping[str, float]) -> None:
        """One line of JSON in metrics.jsonl."""
        self.folder.mkdir(parents=True, exist_ok=True)
        line = {"kind": kind, "step": self.step, "hours": self.seconds / 3600, **values}
        with (self.folder / "metrics.jsonl").open("a") as file:
            file.write(json.dumps(line) + "\n")


def make_optimizer(network: nn.Module, config: LoopConfig) -> torch.optim.Optimizer:
    """The optimiser that ``LoopConfig.optimizer`` names; frozen parameters are left out."""
    if config.optimizer == "released":
        groups = released_groups(network, config.weight_decay)
        return ReleasedRAdam(groups, lr=config.learning_rate)
    return torch.optim.RAdam(
        parameter_groups(network, config.weight_decay),
        lr=config.learning_rate,
        decoupled_weight_decay=True,
    )


def schedule(progress: float, warmup: float) -> float:
    """Factor of the peak learning rate: a linear rise, then a linear fall to zero."""
    if progress < warmup:
        return max(0.02, progress / warmup)
    return (1 - progress) / (1 - warmup)


def parameter_groups(network: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Decay for matrices and kernels only (released code: names with CvK)."""
    trained = [p for p in network.parameters() if p.requires_grad]
    matrices = [p for p in trained if p.ndim >= 2]
    others = [p for p in trained if p.ndim < 2]
    return [
        {"params": matrices, "weight_decay": weight_decay},
        {"params": others, "weight_decay": 0.0},
    ]


def initialise(network: nn.Module, path: Path) -> None:
    """Starts from the weights of a checkpoint, for fine-tuning."""
    network.load_state_dict(read_tensors(path))


def _floats(parts: Mapping[str, Tensor]) -> dict[str, float]:
    return {name: part.item() for name, part in parts.items()}


__all__ = ["LoopConfig", "Task", "Trainer", "write_whole"]
