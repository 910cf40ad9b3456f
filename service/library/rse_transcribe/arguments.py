"""Samples, rates, options and models as callers give them."""

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from model import storage
from model.transcriber import TranscriptionModel
from service.engine.load import pick_device
from service.engine.runners import EngineModel
from service.protocol.options import AudioFormat, Encoding

Rate = float | np.number
"""A sample rate in Hz."""

Model = str | os.PathLike[str] | EngineModel
"""What transcribes: a shipped name, a path to .safetensors, or what ``load`` returned."""

MAX_CHANNELS = 32
"""An array with more has its axes swapped."""

_owner: int | None = None  # the process that has begun to compute


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


def float_format(sample_rate: Rate, channels: int = 1) -> AudioFormat:
    """Return the format of float samples. The rate may be 44100.0 or a number of numpy.

    Raises ProtocolError, a ValueError.
    """
    rate: Any = int(sample_rate) if float(sample_rate).is_integer() else sample_rate
    return AudioFormat(encoding=Encoding.PCM_F32LE, sample_rate_hz=rate, channels=channels)


def instrument_names(instruments: str | Sequence[str] | None) -> tuple[str, ...]:
    """Return the names of instruments, given as a sequence or as one comma-separated string."""
    given = instruments or ()
    return tuple(map(str.strip, given.split(","))) if isinstance(given, str) else tuple(given)


def available_models() -> list[str]:
    """Names of the weights in this package, for ``model=``."""
    return storage.shipped()


def load(model: str | os.PathLike[str] = "live", device: str = "auto") -> TranscriptionModel:
    """A network in evaluation mode, a ``torch.nn.Module``; give it as ``model=`` to use it again.

    Args:
        model: one of ``available_models()``, or the path of a .safetensors file with its card.
        device: ``cpu``, ``cuda``, ``cuda:N``, or ``auto``: CUDA if available.

    Raises:
        ValueError: no such weights (``model.storage.WeightsError``), damaged ones, or no such
            device here.
    """
    device = pick_device(device)
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:  # no such device; none in this build
        reason = str(error).partition("\n")[0]
        raise ValueError(f"device {device!r} cannot be used: {reason}") from None
    return storage.load(os.fspath(model), device=device)


def as_model(model: Model, device: str) -> EngineModel:
    """The network that ``model=`` and ``device=`` ask for. Raises as ``load`` and
    ``check_not_forked`` do."""
    check_not_forked()
    if isinstance(model, str | os.PathLike):
        return load(model, device)
    if not hasattr(model, "predict_features"):
        raise ValueError(f"a model is a name, a path or what load() returns, not {model!r:.60}")
    return model


def check_not_forked() -> None:
    """Raises RuntimeError in a process forked from one that has computed: its threads stayed
    there, and nobody would answer."""
    global _owner
    if _owner not in (None, os.getpid()):
        raise RuntimeError(
            "a forked process cannot transcribe once its parent has: start processes by spawn "
            '(multiprocessing.get_context("spawn"))'
        )
    _owner = os.getpid()
