"""The training loop of all tasks.

A task provides the network, the batches, a loss and a validation. The loop adds the optimiser, the
schedule, averaged weights, checkpoints, metrics and time limits.
"""

from __future__ import annotations

import contextlib
import io
import logging
import math
import signal
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol

import torch
from pydantic import Field
from torch import Tensor, nn
from tqdm import tqdm

from model.storage import WeightsError, fastest_dtype, save_weights, write_atomically
from model.validation import Count, Flag, NonNegative, NonNegativeInt, validated_dataclass
from training.loop.optimizer import make_optimizer, running_average, schedule
from training.loop.run_folder import STATE, read_state, write_metrics

logger = logging.getLogger(__name__)

_REPORT_S = 30.0  # maximum time between two lines of training loss
_SAVE_S = 600.0  # maximum training time that is lost if the process is killed
_BelowOne = Annotated[float, Field(ge=0, lt=1)]


@validated_dataclass()
class LoopConfig:
    """Length, learning rate and intervals of a training run."""

    steps: Count = 20_000  # Length of the schedule in optimiser steps
    max_minutes: NonNegative = 0.0
    """Save and stop after this many minutes of training, not counting validations; `resume`
    continues. 0: no limit."""
    learning_rate: NonNegative = 2e-3  # Peak learning rate
    warmup: _BelowOne = 0.02
    """Fraction of the schedule in which the rate rises, from 2 % of the peak to the peak.
    Afterwards the rate falls to 0."""
    weight_decay: NonNegative = 0.01
    """Decoupled weight decay of matrices and kernels, relative to the learning rate."""
    optimizer: Literal["radam", "muon", "released"] = "radam"
    """"muon": orthogonal steps for the matrices of shuffle-exchange networks, RAdam for the rest.
    "released": the released code's variant of RAdam, with its own clipping."""
    gradient_clip: NonNegative = 5.0
    """Maximum norm of the gradient over all parameters; 0: no clipping. "released" ignores it."""
    average: _BelowOne = 0.999
    """Decay of the running average of the weights, which is validated and saved; 0: no average."""
    validate_steps: Count = 1000  # Optimiser steps between validations; each also saves
    log_steps: Count = 50
    """Optimiser steps between lines of training loss. There is a line at least every 30 s."""
    bfloat16: Flag | Literal["auto"] = "auto"
    """Autocast the forward pass to bfloat16; "auto": only if the hardware supports bfloat16,
    because emulated bfloat16 is many times slower than float32."""
    compile: Flag = False
    """Compile the network (torch.compile), which needs a C++ compiler. No effect on the paper's
    MusicNet network, whose loss uses parts of the network."""
    seed: NonNegativeInt = 1  # Seed of weights, data order and dropout


class Task(Protocol):
    """Interface of a task to the training loop."""

    network: nn.Module
    score: str  # the metric of `validate` that selects the best weights; higher is better

    @property
    def statistics(self) -> nn.Module:
        """Buffers that `loss` updates in addition to those of the network. A resumed run restores
        them."""

    def windows(self, steps: int) -> int:
        """Return the number of windows, or of sequences, in the first ``steps`` batches."""

    def batches(self, seed: int, step: int) -> Generator[Any, None, None]:
        """Yield batches without end, starting with the batch of `step`. If the batches depend only
        on the arguments, a resumed run gives the same results as an uninterrupted one."""

    def loss(self, batch: Any) -> tuple[Tensor, Mapping[str, Tensor]]:
        """Return the loss and its parts."""

    def validate(self, network: nn.Module) -> dict[str, float]:
        """Return the metrics of a copy of the network that has the averaged weights."""

    def card(self) -> dict[str, Any]:
        """Return the card of the weights: configuration, data, licences."""


class Trainer:
    """Trains a task and writes to a folder: last and best weights, state of the run, metrics."""

    def __init__(
        self,
        task: Task,
        config: LoopConfig,
        folder: Path,
        earlier: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        """earlier: the stages of training before this run, which the card lists."""
        self.task, self.config, self.folder = task, config, folder
        self.earlier = list(earlier)
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        torch.backends.cudnn.benchmark = True  # batches have few different shapes
        self.bfloat16 = (
            fastest_dtype(self.device) is torch.bfloat16
            if config.bfloat16 == "auto"
            else config.bfloat16
        )
        task.network.to(self.device)
        rate, decay = config.learning_rate, config.weight_decay
        self.optimizer = make_optimizer(task.network, config.optimizer, rate, decay)
        self.average = torch.optim.swa_utils.AveragedModel(
            task.network, multi_avg_fn=running_average(config.average), use_buffers=True
        )
        if config.compile:  # after the copy for the average, which is validated uncompiled
            task.network.compile()
        self.step = 0
        self.seconds = 0.0  # duration of the training, including earlier runs that this one resumes
        self.best = -math.inf

    @property
    def progress(self) -> float:
        """Completed fraction of the schedule, 0 ... 1."""
        return min(1.0, self.step / self.config.steps)

    @property
    def learning_rate(self) -> float:
        config, progress = self.config, self.progress
        if config.optimizer == "released":  # the released code counts steps from 1
            progress = min(1.0, (self.step + 1) / config.steps)
        return config.learning_rate * schedule(progress, config.warmup)

    def resume(self) -> None:
        """Continue from the state that is saved in the folder. Raises WeightsError if the state is
        missing or corrupt, or belongs to another network. Raises ValueError if it belongs to
        another optimiser."""
        state = read_state(self.folder)
        try:
            self.task.network.load_state_dict(state["network"])
            self.average.load_state_dict(state["average"])
            self.task.statistics.load_state_dict(state["statistics"])
        except RuntimeError as error:
            raise WeightsError(
                f"the state in {self.folder} belongs to another network: {error}"
            ) from error
        self.optimizer.load_state_dict(state["optimizer"])
        self.earlier, self.best = state["earlier"], state["best"]
        self.step, self.seconds = state["step"], state["seconds"]
        torch.set_rng_state(state["random"])
        if self.device.type == "cuda" and "random_cuda" in state:
            torch.cuda.set_rng_state(state["random_cuda"])

    def run(self) -> dict[str, float]:
        """Train until the end of the schedule, or for `max_minutes`. Return the metrics of the last
        validation, or an empty dict if a signal interrupted the run. Raises FloatingPointError if
        the loss or its gradient is not finite."""
        config = self.config
        if self.step == 0:
            torch.manual_seed(config.seed)
        stop_s = self.seconds + 60 * config.max_minutes if config.max_minutes else math.inf
        next_report, next_save = self.seconds + _REPORT_S, self.seconds + _SAVE_S
        bar = tqdm(
            total=1.0,
            initial=self.progress,
            bar_format="{l_bar}{bar}| {elapsed}<{remaining} {postfix}",
        )
        batches = contextlib.closing(self.task.batches(config.seed, self.step))
        with batches as stream, bar, deferred_signals() as received:
            try:
                while self.progress < 1 and self.seconds < stop_s:
                    start = time.monotonic()
                    losses = self.train_step(next(stream))
                    self.seconds += time.monotonic() - start
                    if self.step % config.log_steps == 0 or self.seconds >= next_report:
                        self._report(bar, losses)
                        next_report = self.seconds + _REPORT_S
                    if received:
                        break
                    must_validate = self.step % config.validate_steps == 0
                    if (must_validate or self.seconds >= next_save) and self.progress < 1:
                        self.save(must_validate)
                        next_save = self.seconds + _SAVE_S
            except FloatingPointError:
                raise  # the weights are useless, so the saved ones must not be overwritten
            except Exception:
                if not received:  # a signal may also have stopped the process that loads data
                    logger.error("training failed at step %d; saving", self.step)
                    self.save(validate=False)
                    raise
            if received:
                logger.warning("interrupted at step %d; saving", self.step)
            # After a signal the process may be killed before a validation finishes.
            return self.save(validate=not received)

    def _report(self, bar: tqdm[Any], parts: Mapping[str, Tensor]) -> None:
        """Log the losses and the mean speed since the start of the training."""
        values = {name: part.item() for name, part in parts.items()}
        seconds = max(1e-9, self.seconds)
        steps_s, windows_s = self.step / seconds, self.task.windows(self.step) / seconds
        values["windows_per_s"] = windows_s
        write_metrics(self.folder, "train", self.step, self.seconds, values)
        bar.n = self.progress
        bar.set_postfix_str(
            f"loss {values['loss']:.4f} {steps_s:.2f} steps/s {windows_s:.1f} windows/s"
        )

    def train_step(self, batch: Any) -> Mapping[str, Tensor]:
        """Compute gradients, clip them and update the weights. Return the loss and its parts.
        Raises FloatingPointError if the loss or its gradient is not finite."""
        network = self.task.network.train()
        for group in self.optimizer.param_groups:
            group["lr"] = self.learning_rate
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.bfloat16):
            loss, parts = self.task.loss(batch)
        loss.backward()
        clips = self.config.gradient_clip and self.config.optimizer != "released"
        limit = self.config.gradient_clip if clips else math.inf
        norm = nn.utils.clip_grad_norm_(network.parameters(), limit)
        if not torch.isfinite(loss + norm):  # a single check, because each one waits for a GPU
            raise FloatingPointError(
                f"the loss is {loss.item()} and the norm of its gradient is {norm.item()} "
                f"at step {self.step}"
            )
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.step += 1
        self.average.update_parameters(network)
        return {"loss": loss.detach(), **parts}

    def save(self, validate: bool = True) -> dict[str, float]:
        """Save the averaged weights as last.safetensors, and the state of the run. With `validate`,
        then validate the weights, save everything again with the metrics, and also save the weights
        as best.safetensors if they are the best so far. Return the metrics.

        The first save precedes the validation because the process may be killed during it.
        """
        network = self.average.module.eval()
        self._write(network, {})
        if not validate:
            return {}
        with torch.random.fork_rng():  # validation must not influence training
            metrics = self.task.validate(network)
        write_metrics(self.folder, "validation", self.step, self.seconds, metrics)
        is_best = metrics[self.task.score] > self.best
        self.best = max(self.best, metrics[self.task.score])
        self._write(network, metrics, is_best)
        return metrics

    def _write(self, network: nn.Module, metrics: Mapping[str, float], best: bool = False) -> None:
        """Write last.safetensors, best.safetensors if `best`, and the state of the run."""
        card = {
            **self.task.card(),
            "training": {
                "loop": asdict(self.config),
                "steps": self.step,
                "hours": round(self.seconds / 3600, 3),
                "earlier": self.earlier,
            },
            "validation": dict(metrics),
        }
        save_weights(network, card, self.folder / "last.safetensors")
        if best:
            save_weights(network, card, self.folder / "best.safetensors")
        state = {
            "network": self.task.network.state_dict(),
            "average": self.average.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "statistics": self.task.statistics.state_dict(),
            "step": self.step,
            "seconds": self.seconds,
            "best": self.best,
            "earlier": self.earlier,
            "random": torch.get_rng_state(),
        }
        if self.device.type == "cuda":
            state["random_cuda"] = torch.cuda.get_rng_state()
        buffer = io.BytesIO()  # with a file, torch.save turns an OSError into a RuntimeError
        torch.save(state, buffer)
        write_atomically(self.folder / STATE, buffer.getvalue())


@contextlib.contextmanager
def deferred_signals() -> Iterator[list[int]]:
    """Yield a list to which SIGINT (Ctrl-C) and SIGTERM are appended, so that the block can stop
    between two steps. A second signal raises KeyboardInterrupt immediately."""
    received: list[int] = []

    def record(number: int, _: Any) -> None:
        received.append(number)
        if len(received) > 1:
            raise KeyboardInterrupt

    signals = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, record) for number in signals]
    try:
        yield received
    finally:
        for number, handler in zip(signals, before, strict=True):
            signal.signal(number, handler)
