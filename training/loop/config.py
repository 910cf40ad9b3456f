"""The fields of the training loop, with their units and ranges."""

from typing import Annotated, Literal

from pydantic import Field

from model.ranges import Count, Flag, FromZero, NotNegative, checked

_BelowOne = Annotated[float, Field(ge=0, lt=1)]


@checked()
class LoopConfig:
    """How long, how fast, how often."""

    minutes: NotNegative = 0.0
    """Length of the whole schedule in minutes of training; 0 counts `steps` instead."""
    steps: FromZero = 20_000  # Length of the whole schedule in optimiser steps, if `minutes` is 0
    max_minutes: NotNegative = 0.0
    """Save and stop after this many minutes, to continue with `resume`; 0 never stops."""
    max_steps: FromZero = 0  # Save and stop after this many optimiser steps; 0 never stops
    learning_rate: NotNegative = 2e-3  # Peak learning rate
    warmup: _BelowOne = 0.02
    """Fraction of the schedule over which the rate rises from zero; then it falls linearly to 0."""
    weight_decay: NotNegative = 0.01
    """Decoupled weight decay of matrices and kernels, times the learning rate each step."""
    optimizer: Literal["radam", "muon", "released"] = "radam"
    """"muon": orthogonal steps for the matrices of shuffle-exchange networks, RAdam for the rest.
    "released": the released code's variant, with its own clipping and no warm-up."""
    gradient_clip: NotNegative = 5.0
    """Maximum norm of the gradient over all parameters; 0 does not clip."""
    average: _BelowOne = 0.999
    """Decay of the running average of the weights, which is validated and saved; 0 for none."""
    validate_minutes: NotNegative = 10.0  # Minutes of training between validations; each also saves
    validate_steps: FromZero = 0  # Optimiser steps between validations; 0 uses `validate_minutes`
    log_steps: Count = 50
    """Optimiser steps between lines of training loss; at least one line every half minute."""
    bfloat16: Flag | Literal["auto"] = "auto"
    """Autocast the forward pass; "auto": if the hardware multiplies bfloat16, since emulation is
    many times slower than float32."""
    seed: int = 1  # Seed of weights, data order and dropout

    def __post_init__(self) -> None:
        if not self.minutes and not self.steps:
            raise ValueError("steps must be at least 1 if minutes is 0")
