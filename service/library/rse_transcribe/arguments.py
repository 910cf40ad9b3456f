"""Converts arguments: samples, sample rates, instruments and models."""

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

Rate = float | np.number  # sample rate in Hz
Model = str | os.PathLike[str] | EngineModel  # name, path of .safetensors weights, or network

MAX_CHANNELS = 32  # maximum number of channels; an array with more probably has swapped axes

_owner: int | None = None  # ID of the process that opened the first transcriber or stream


def as_float(samples: ArrayLike | torch.Tensor) -> NDArray[np.float32]:
    """Convert samples, [n] or [n, channels], to float32 with full scale 1.

    Accepts floats with full scale 1, int16, int32, and uint8 as in WAV files (128 is silence).
    Raises ValueError for other shapes and types, such as int64, whose full scale is unknown.
    """
    if isinstance(samples, torch.Tensor):
        samples = samples.detach().cpu()
        samples = (samples.float() if samples.is_floating_point() else samples).numpy()
    try:
        array: NDArray[Any] = np.asarray(samples)
    except (TypeError, ValueError):
        raise ValueError("samples must be an array, or lists of equal lengths") from None
    if array.ndim not in (1, 2) or (array.ndim == 2 and not 1 <= array.shape[1] <= MAX_CHANNELS):
        raise ValueError(
            f"samples must have the shape [n] or [n, channels], with at most {MAX_CHANNELS} "
            f"channels, not {list(array.shape)}"
        )
    if array.dtype.kind == "f":
        return array.astype(np.float32, copy=False)
    if array.dtype == np.uint8:
        return array.astype(np.float32) / np.float32(128) - np.float32(1)
    if array.dtype.newbyteorder("=") in (np.int16, np.int32):
        return (array / -float(np.iinfo(array.dtype).min)).astype(np.float32)
    raise ValueError(
        f"samples must be floats with full scale 1, int16, int32 or uint8, not {array.dtype}: "
        "convert a list of integers with numpy.array(samples, numpy.int16)"
    )


def float_format(sample_rate: Rate) -> AudioFormat:
    """Return the format of float samples. Raises ProtocolError, a ValueError, for a rate that is
    out of range or not an integer. A float such as 44100.0 counts as an integer."""
    rate: Any = int(sample_rate) if float(sample_rate).is_integer() else sample_rate
    return AudioFormat(encoding=Encoding.PCM_F32LE, sample_rate_hz=rate)


def instrument_names(instruments: str | Sequence[str] | None) -> tuple[str, ...]:
    """Return the names in a sequence or a comma-separated string, in lower case."""
    names = instruments.split(",") if isinstance(instruments, str) else instruments or ()
    return tuple(name for part in names if (name := part.strip().lower()))


def available_models() -> list[str]:
    """Return the names of the shipped weights, for ``model=``."""
    return storage.shipped()


def load(model: str | os.PathLike[str] = "live", device: str = "auto") -> TranscriptionModel:
    """Load a network, a ``torch.nn.Module`` in evaluation mode. Pass it as ``model=``.

    Args:
        model: one of ``available_models()``, or the path of a .safetensors file with a model card.
        device: ``cpu``, ``cuda``, ``cuda:N``, or ``auto`` (CUDA if available).

    Raises:
        ValueError: the weights are missing or corrupt, or the device does not exist.
    """
    device = pick_device(device)
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:  # unknown device, or no support in this build
        reason = str(error).partition("\n")[0]
        raise ValueError(f"device {device!r} is not available: {reason}") from None
    return storage.load(os.fspath(model), device=device)


def as_model(model: Model, device: str) -> EngineModel:
    """Return the network for a new transcriber or stream. Load it if ``model`` is a name or a path.
    Raises the errors of ``load`` and ``check_not_forked``, and ValueError if ``model`` is another
    object."""
    global _owner
    check_not_forked()
    _owner = os.getpid()
    if isinstance(model, str | os.PathLike):
        return load(model, device)
    if not hasattr(model, "predict_features"):
        message = "model must be a name, a path or the result of load()"
        raise ValueError(f"{message}, not {model!r:.60}")
    return model


def check_not_forked() -> None:
    """Raise RuntimeError if this process was forked after its parent opened a transcriber or a
    stream, because the threads that compute exist only in the parent."""
    if _owner not in (None, os.getpid()):
        raise RuntimeError(
            "this process was forked after its parent opened a transcriber or a stream: start "
            'processes with spawn (multiprocessing.get_context("spawn"))'
        )
