"""The choice of number format."""

from __future__ import annotations

import pytest
import torch

from model.precision import fastest_dtype


@pytest.mark.parametrize(
    ("capabilities", "expected"),
    [
        ({"avx512_bf16": True}, torch.bfloat16),
        ({"amx_bf16": True}, torch.bfloat16),
        ({"avx2": True, "avx512_bf16": False}, torch.float32),
        ({}, torch.float32),
    ],
)
def test_bfloat16_only_where_the_processor_multiplies_it(
    monkeypatch: pytest.MonkeyPatch, capabilities: dict[str, bool], expected: torch.dtype
) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities, raising=False)
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX512")
    assert fastest_dtype(torch.device("cpu")) == expected


def test_no_bfloat16_where_torch_is_held_to_older_instructions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    capabilities = {"amx_bf16": True}
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities, raising=False)
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX2")
    assert fastest_dtype(torch.device("cpu")) == torch.float32


def test_unknown_devices_compute_in_float32() -> None:
    assert fastest_dtype(torch.device("meta")) == torch.float32
