"""Configurations: each field out of its range is named, and what is in range makes a network."""

import json
import math
from dataclasses import fields, replace
from typing import Any

import pytest

from model.config import (
    CONFIGS,
    LIVE,
    PITCHES,
    WINDOW,
    FilterbankConfig,
    ModelConfig,
    RSEConfig,
    StridedConfig,
)
from model.symbols import SymbolConfig
from model.transcriber import TranscriptionModel

CONFIGURATIONS = (RSEConfig, StridedConfig, FilterbankConfig, ModelConfig, SymbolConfig)
OUT_OF_RANGE: list[tuple[type, dict[str, list[Any]]]] = [
    (
        RSEConfig,
        {"maps": [0, 1.5, 12.0, "12", True], "norm": ["", "other"], "dropout": [-0.1, 1.1]},
    ),
    (RSEConfig, {"residual": [0, 1, math.nan], "residual_speed": [0, math.inf]}),
    (StridedConfig, {"convolutions": [-1, 8], "input_noise": [-0.1], "fourier": [1, "yes"]}),
    (FilterbankConfig, {"lowest_pitch": [-1, PITCHES], "semitones": [0], "convolutions": [-1]}),
    (FilterbankConfig, {"kernel_lengths": [(), (1000,), (2 * WINDOW,), 1024]}),
    (FilterbankConfig, {"lookahead": [-128, 100, 1024], "frames_per_patch": [0, 3, 65]}),
    (FilterbankConfig, {"harmonics": [(), (0,), (math.nan,)], "floor_db": [0, 10.0]}),
    (ModelConfig, {"name": [""], "sample_rate": [0]}),
    (ModelConfig, {"heads": [(), ("onset",), ("frame", "loudness"), ("frame", "onset", "onset")]}),
    (SymbolConfig, {"vocabulary": [0], "classes": [0], "word_features": [-1]}),
]
SYMBOLS = SymbolConfig(5, 4)
REQUIRED: dict[type, dict[str, Any]] = {SymbolConfig: {"vocabulary": 5, "classes": 4}}


@pytest.mark.parametrize(("kind", "wrong"), OUT_OF_RANGE)
def test_a_field_out_of_range_is_named(kind: type, wrong: dict[str, list[Any]]) -> None:
    for name, values in wrong.items():
        for value in values:
            with pytest.raises(ValueError, match=rf"^{name}[\w.]* must .+"):
                kind(**REQUIRED.get(kind, {}) | {name: value})


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
    with pytest.raises(ValueError, match=r"semitones must leave .* sample rate of 8000 Hz"):
        TranscriptionModel(replace(LIVE, sample_rate=8000))


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS.keys())
def test_configurations_come_back_from_json(config: ModelConfig) -> None:
    assert ModelConfig.from_json(json.loads(json.dumps(config.to_json()))) == config
