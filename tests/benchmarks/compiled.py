"""The plain network through ``torch.compile``, which the other arrangements are measured beside."""

from __future__ import annotations

import inspect
from collections.abc import Callable

import torch
from torch import Tensor

from model.transcriber import TranscriptionModel


def compiled(
    transcriber: TranscriptionModel, backend: str = "inductor"
) -> Callable[[Tensor], Tensor]:
    """``transcriber.predict_features``; the first call compiles, "inductor" by a C++ compiler.

    Its inference mode is left for ``no_grad``: tensors of the one fail in graphs of the other.
    What was compiled before is forgotten: few graphs of the same code are kept.
    """
    torch.compiler.reset()
    predict_features = inspect.unwrap(TranscriptionModel.predict_features)

    def predict(features: Tensor) -> Tensor:
        return predict_features(transcriber, features)

    graph = torch.compile(predict, backend=backend)
    return torch.no_grad()(lambda features: graph(features.clone()))
