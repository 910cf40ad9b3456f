"""The fields of the training loop, with their units and ranges."""

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
    "patience",
)


@dataclass(frozen=True)
class LoopConfig:
    """How long, how fast, how often."""

    minutes: float = 0.0
    """Length of the whole schedule in minutes of training; 0 counts `steps` instead."""
    steps: int = 20_000
    """Length of the whole schedule in optimiser steps, where `minutes` is 0."""
    max_minutes: float = 0.0
    """Save and stop after this many minutes, to continue with `resume`; 0 never stops."""
    max_steps: int = 0
    """Save and stop after this many optimiser steps; 0 never stops."""
    learning_rate: float = 2e-3
    """Peak learning rate."""
    warmup: float = 0.02
    """Fraction of the schedule over which the rate rises from zero; then it falls linearly to 0."""
    weight_decay: float = 0.01
    """Decoupled weight decay of matrices and kernels, times the learning rate each step."""
    optimizer: Literal["radam", "muon", "released"] = "radam"
    """"muon": orthogonal steps for the matrices of shuffle-exchange networks, RAdam for the rest.
    "released": the released code's variant, with its own clipping and no warm-up."""
    accumulate: int = 1
    """Batches per optimiser step; their gradients are averaged."""
    gradient_clip: float = 5.0
    """Maximum norm of the gradient over all parameters; 0 does not clip."""
    average: float = 0.999
    """Decay of the running average of the weights, which is validated and saved; 0 for none."""
    validate_minutes: float = 10.0
    """Minutes of training between validations; each also saves."""
    validate_steps: int = 0
    """Optimiser steps between validations; 0 uses `validate_minutes`."""
    patience: int = 0
    """Stop after this many validations in a row without a better score; 0 never stops early."""
    log_steps: int = 50
    """Optimiser steps between lines of training loss; at least one line every half minute."""
    tensorboard: bool = False
    """Write TensorBoard events beside metrics.jsonl."""
    bfloat16: bool | Literal["auto"] = "auto"
    """Autocast the forward pass; "auto": if the hardware multiplies bfloat16, since emulation is
    many times slower than float32."""
    seed: int = 1
    """Seed of weights, data order and dropout."""

    def __post_init__(self) -> None:
        """Raises ValueError naming a field outside its range."""
        for name in ("accumulate", "log_steps", *(() if self.minutes else ("steps",))):
            self._demand(name, getattr(self, name) >= 1, "at least 1")
        for name in ("warmup", "average"):
            self._demand(name, 0 <= getattr(self, name) < 1, "from 0 to below 1")
        for name in AT_LEAST_0:
            self._demand(name, 0 <= getattr(self, name) < math.inf, "a number from 0")

    def _demand(self, name: str, met: bool, condition: str) -> None:
        if not met:
            raise ValueError(f"loop.{name} must be {condition}, not {getattr(self, name)}")
