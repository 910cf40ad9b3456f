"""Samples, rates and options as callers give them."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from service.protocol.options import AudioFormat, Encoding, StreamOptions

Rate = float | np.number
"""A sample rate in Hz."""

MAX_CHANNELS = 32
"""An array with more has its axes swapped."""


def as_float(samples: ArrayLike | torch.Tensor) -> NDArray[np.float32]:
    """[n] or [n, channels] to float32 of full scale 1.

    Takes floats of full scale 1, int16, int32, and uint8 as WAV stores it (128 is silence).
    Raises ValueError for other shapes and types; int64, and so a list of ints, has no known scale.
    """
    if isinstance(samples, torch.Tensor):
        samples = samples.detach().cpu()
        samples = (samples.float() if samples.is_floating_point() else samples).numpy()
    try:
        array: NDArray[Any] = np.asarray(samples)
    except (TypeError, ValueError):  # lists of unequal lengths, for one
        array = np.zeros((0, 0))
    if array.ndim not in (1, 2) or (array.ndim == 2 and not 1 <= array.shape[1] <= MAX_CHANNELS):
        raise ValueError(
            f"samples have the shape [n] or [n, channels], at most {MAX_CHANNELS} channels, "
            f"not {list(array.shape)}"
        )
    if array.dtype.kind == "f":
        return array.astype(np.float32, copy=False)
    if array.dtype == np.uint8:
        return array.astype(np.float32) / np.float32(128) - np.float32(1)
    if array.dtype in (np.int16, np.int32):
        return (array / -float(np.iinfo(array.dtype).min)).astype(np.float32)
    raise ValueError(
        f"samples are floats of full scale 1, or int16, int32 or uint8, not {array.dtype}: "
        "of a list of ints, make numpy.array(samples, numpy.int16)"
    )


def floats_at(sample_rate: Rate, channels: int = 1) -> AudioFormat:
    """The format of float samples; 44100.0 and numpy's numbers are whole numbers too.

    Raises OptionsError, a ValueError.
    """
    rate: Any = sample_rate
    if float(rate).is_integer():
        rate = int(rate)
    return AudioFormat(encoding=Encoding.PCM_F32LE, sample_rate_hz=rate, channels=channels)


def stream_options(
    defaults: StreamOptions,
    lookahead_ms: float,
    instruments: Sequence[str] | None,
    tuning_hz: float | None,
    bends: bool,
    block_frames: int | None = None,
) -> StreamOptions:
    """The defaults with what the caller asks for. Raises subclasses of ValueError."""
    names = [instruments] if isinstance(instruments, str) else instruments or ()
    return replace(
        defaults,
        lookahead_ms=float(lookahead_ms),
        block_frames=defaults.block_frames if block_frames is None else block_frames,
        instruments=tuple(str(name) for name in names),
        tuning_hz=None if tuning_hz is None else float(tuning_hz),
        bends=bends,
    )
