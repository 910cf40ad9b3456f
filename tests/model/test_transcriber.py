import pytest
import torch

from model.transcriber import TranscriptionModel
from tests.networks import STRIDED


def test_windows_of_another_length_are_refused() -> None:
    with pytest.raises(ValueError, match="8192"):
        TranscriptionModel(STRIDED).predict(torch.zeros(1, 100))
