"""The fields of the training loop, with their units and ranges."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

AT_LEAST_0 = (
    "minutes",
    "max_minutes",
    "max_steps",
    "learning_rate",
    "weight_decay",
    "gradient_clip",
    "validate_minutes",
    "validate_steps",
)


@dataclass(frozen=True)
class LoopConfig:
    """How long, how fast, how often."""

    minutes: float = 0.0
    """Length of the whole schedule in minutes of training; 0 counts `steps` instead."""
    steps: int = 20_000
    """Length of the whole schedule in optimiser steps, where `minutes` is 0."""
    max_minutes: float = 0.0
    """Stop this slice after so many minutes and save, to go on with `resume`; 0 never stops."""
    max_steps: int = 0
    """Stop this slice after so many optimiser steps and save; 0 never stops."""
    learning_rate: float = 2e-3
    """At its peak."""
    warmup: float = 0.02
    """Part of the schedule over which the rate rises from zero; then it falls linearly to zero."""
    weight_decay: float = 0.01
    """Decoupled, of matrices and kernels; times the learning rate each step."""
    optimizer: Literal["radam", "released"] = "radam"
    """"released": the released code's variant, which clips by itself and has no warm-up."""
    accumulate: int = 1
    """Batches whose gradients are averaged for an optimiser step."""
    gradient_clip: float = 5.0
    """Largest norm of the gradient over all parameters; 0 leaves it as it is."""
    average: float = 0.999
    """Decay of the running average of the weights that is validated and saved; 0 for none."""
    validate_minutes: float = 10.0
    """Between validations and checkpoints, in minutes of training."""
    validate_steps: int = 0
    """Between validations and checkpoints, in optimiser steps; 0 leaves it to the minutes."""
    log_steps: int = 50
    """Optimiser steps between lines of training loss; slow steps are reported every half minute."""
    tensorboard: bool = False
    """Write TensorBoard events beside metrics.jsonl."""
    bfloat16: bool | Literal["auto"] = "auto"
    """Autocast the forward pass; "auto": where the device multiplies bfloat16 in hardware, since
    emulation is many times slower than float32."""
    compile: str = ""
    """Backend of torch.compile for the switch layers ("inductor"), which fuses their many small
    operations; empty runs them as they are."""
    seed: int = 1
    """Of weights, data order and dropout."""

    def __post_init__(self) -> None:
        """Raises ValueError for fields outside of their range, by name."""
        for name in ("accumulate", "log_steps", *(() if self.minutes else ("steps",))):
            self._demand(name, getattr(self, name) >= 1, "at least 1")
        for name in ("warmup", "average"):
            self._demand(name, 0 <= getattr(self, name) < 1, "from 0 to below 1")
        for name in AT_LEAST_0:
            self._demand(name, 0 <= getattr(self, name) < math.inf, "a number from 0")

    def _demand(self, name: str, met: bool, condition: str) -> None:
        if not met:
            raise ValueError(f"loop.{name} must be {condition}, not {getattr(self, name)}")
