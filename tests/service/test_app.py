"""Which weights a service runs."""

import pytest
import torch

from model import storage
from service.engine.load import pick_model


@pytest.mark.parametrize(
    ("device", "arithmetic", "picked"),
    [
        ("cuda:0", torch.bfloat16, "accurate"),
        ("cpu", torch.bfloat16, "live"),
        ("cpu", torch.float32, "light"),
    ],
)
def test_auto_is_what_the_machine_has_time_for(
    monkeypatch: pytest.MonkeyPatch, device: str, arithmetic: torch.dtype, picked: str
) -> None:
    monkeypatch.setattr(storage, "fastest_dtype", lambda _: arithmetic)
    assert pick_model("auto", device) == picked
    assert pick_model("light", device) == "light"
