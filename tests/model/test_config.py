"""Configurations name each invalid field, and valid ones make a network."""

import json
from dataclasses import fields, replace
from typing import Any

import pytest

from model.config import (
    ACCURATE,
    LIGHT,
    LIVE,
    PAPER_TEXT,
    RELEASED,
    FilterbankConfig,
    ModelConfig,
    RSEConfig,
    StridedConfig,
)
from model.symbols import SymbolConfig
from model.transcriber import TranscriptionModel

CONFIGURATIONS = (RSEConfig, StridedConfig, FilterbankConfig, ModelConfig, SymbolConfig)
SYMBOLS = SymbolConfig(5, 4)
REQUIRED: dict[type, dict[str, Any]] = {SymbolConfig: {"vocabulary": 5, "classes": 4}}


@pytest.mark.parametrize("kind", CONFIGURATIONS)
def test_every_field_is_checked(kind: type) -> None:
    for field in fields(kind):
        with pytest.raises(ValueError, match=f"^{field.name}.* must be .+, not None$"):
            kind(**REQUIRED.get(kind, {}) | {field.name: None})


@pytest.mark.parametrize(
    ("config", "change", "message"),
    [
        (SYMBOLS, {"kind": "other"}, "not the conf"),
        (SYMBOLS, {"rse": {"wings": 2}}, "wings"),
        (SYMBOLS, {"wings": 2}, "wings"),
        (LIVE, {"front_end": {"kind": "wavelet"}}, "wavelet"),
        (LIVE, {"front_end": {**LIVE.to_json()["front_end"], "octaves": 7}}, "octaves"),
        (LIVE, {"colour": 3}, "colour"),
        (LIVE, {"heads": ["onset"]}, "frame"),
    ],
)
def test_configurations_with_unknown_parts_are_refused(
    config: ModelConfig | SymbolConfig, change: dict[str, object], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        type(config).from_json({**config.to_json(), **change})


def test_errors_say_what_is_allowed_and_what_does_not_go_together() -> None:
    with pytest.raises(ValueError, match="^maps must be greater than or equal to 1, not 0$"):
        RSEConfig(maps=0)
    with pytest.raises(ValueError, match="maps must be at least 2"):
        ModelConfig(rse=RSEConfig(maps=1))
    with pytest.raises(ValueError, match="sample_rate must be above .* Hz.*, not 8000"):
        TranscriptionModel(replace(LIVE, sample_rate=8000))


@pytest.mark.parametrize("config", [LIVE, LIGHT, ACCURATE, PAPER_TEXT, RELEASED])
def test_configurations_come_back_from_json(config: ModelConfig) -> None:
    assert ModelConfig.from_json(json.loads(json.dumps(config.to_json()))) == config
