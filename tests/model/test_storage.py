"""Tests of reading and writing weights."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from model.storage import WeightsError, fastest_dtype, load, save_weights, write_atomically
from model.symbols import SymbolConfig, load_symbol_network
from model.transcriber import TranscriptionModel
from tests.networks import TINY


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.safetensors"
    save_weights(TranscriptionModel(TINY), {"config": TINY.to_json()}, path)
    return path


def test_half_precision_halves_the_file_size(tmp_path: Path, saved: Path) -> None:
    half = tmp_path / "half.safetensors"
    save_weights(load(saved, dtype=torch.float32), {"config": TINY.to_json()}, half, half=True)
    assert half.stat().st_size < 0.6 * saved.stat().st_size
    assert {p.dtype for p in load(half, dtype=torch.float32).parameters()} == {torch.float32}


def test_file_names_of_maximum_length_are_written(tmp_path: Path) -> None:
    file = tmp_path / f"{'n' * 251}.mid"
    for content in (b"one", b"two"):
        write_atomically(file, content)
        assert file.read_bytes() == content
    assert list(tmp_path.iterdir()) == [file]


WIDER = replace(TINY, rse=replace(TINY.rse, maps=6))
OTHER_CONFIGS: list[Any] = [{}, None, 3, [], SymbolConfig(7, 3).to_json()]


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        (WIDER.to_json(), "does not fit"),
        *((other, "not a transcription") for other in OTHER_CONFIGS),
        (replace(TINY, sample_rate=8000).to_json(), "sample_rate must be above"),
    ],
)
def test_weights_of_another_kind_are_rejected(saved: Path, config: Any, problem: str) -> None:
    card = saved.with_suffix(".json")
    card.write_text(json.dumps({**json.loads(card.read_text()), "config": config}))
    if config != OTHER_CONFIGS[-1]:
        with pytest.raises(WeightsError, match="not the configuration of a symbol network"):
            load_symbol_network(saved)
    with pytest.raises(WeightsError, match=problem):
        load(saved)


def test_corrupt_files_cause_clear_errors(saved: Path) -> None:
    data = saved.read_bytes()
    saved.write_bytes(data[: len(data) // 2])
    with pytest.raises(WeightsError, match="cannot read"):
        load(saved)
    saved.write_bytes(data)
    saved.with_suffix(".json").write_text("{")
    with pytest.raises(WeightsError, match="card"):
        load(saved)
    saved.with_suffix(".json").unlink()
    with pytest.raises(WeightsError, match="card"):
        load(saved)


@pytest.mark.parametrize(
    ("capabilities", "instruction_set", "expected"),
    [
        ({"avx512_bf16": True}, "AVX512", torch.bfloat16),
        ({"amx_bf16": True}, "AVX512", torch.bfloat16),
        ({"amx_bf16": True}, "AVX2", torch.float32),  # torch is limited to older instructions
        ({"avx2": True, "avx512_bf16": False}, "AVX512", torch.float32),
        ({}, "AVX512", torch.float32),
    ],
)
def test_bfloat16_requires_hardware_support(
    monkeypatch: pytest.MonkeyPatch,
    capabilities: dict[str, bool],
    instruction_set: str,
    expected: torch.dtype,
) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities)
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: instruction_set)
    assert fastest_dtype(torch.device("cpu")) == expected
