"""The choice of number format."""

import pytest
import torch

from model.precision import fastest_dtype


@pytest.mark.parametrize(
    ("capabilities", "used", "expected"),
    [
        ({"avx512_bf16": True}, "AVX512", torch.bfloat16),
        ({"amx_bf16": True}, "AVX512", torch.bfloat16),
        ({"amx_bf16": True}, "AVX2", torch.float32),  # torch is held to older instructions
        ({"avx2": True, "avx512_bf16": False}, "AVX512", torch.float32),
        ({}, "AVX512", torch.float32),
    ],
)
def test_bfloat16_only_where_the_processor_multiplies_it(
    monkeypatch: pytest.MonkeyPatch, capabilities: dict[str, bool], used: str, expected: torch.dtype
) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities, raising=False)
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: used)
    assert fastest_dtype(torch.device("cpu")) == expected


def test_unknown_devices_compute_in_float32() -> None:
    assert fastest_dtype(torch.device("meta")) == torch.float32
