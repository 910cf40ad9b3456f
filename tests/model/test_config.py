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

NO_NUMBER: list[Any] = [math.nan, math.inf, -math.inf, None, "1", True]
NO_COUNT: list[Any] = [0, -1, 1.5, 10.0, *NO_NUMBER]
NO_WORD: list[Any] = ["", "other", None, 1]
NO_TRUTH: list[Any] = [None, 0, 1, "true"]

WRONG: dict[type, dict[str, list[Any]]] = {
    RSEConfig: {
        "maps": NO_COUNT,
        "blocks": NO_COUNT,
        "norm": NO_WORD,
        "activation": NO_WORD,
        "hidden_factor": NO_COUNT,
        "residual": [0, 1, -0.1, 1.1, *NO_NUMBER],
        "residual_speed": [0, -1.0, *NO_NUMBER],
        "shuffle": NO_WORD,
        "dropout": [-0.1, 1.1, *NO_NUMBER],
        "unit": NO_WORD,
        "residual_scale": NO_WORD,
    },
    StridedConfig: {
        "convolutions": [-1, 8, 1.5, *NO_NUMBER],
        "input_noise": [-0.1, *NO_NUMBER],
        "fourier": NO_TRUTH,
    },
    FilterbankConfig: {
        "lowest_pitch": [-1, PITCHES, 1.5, *NO_NUMBER],
        "semitones": NO_COUNT,
        "bins_per_semitone": NO_COUNT,
        "kernel_lengths": [(), (1000,), (512,), (2 * WINDOW,), (1024, "2048"), (1024.0,), 1024],
        "quality": [0, -1.0, *NO_NUMBER],
        "lookahead": [-128, 100, 128.0, 1024, *NO_NUMBER],
        "floor_db": [0, 10.0, *NO_NUMBER],
        "harmonics": [(), (0,), (-1.0, 2), (math.nan,), ("1",), 1.0],
        "octaves": NO_COUNT,
        "channels": NO_COUNT,
        "convolutions": [-1, 1.5, *NO_NUMBER],
        "frames_per_patch": [0, 3, 65, 1.5, *NO_NUMBER],
        "history": NO_TRUTH,
    },
    ModelConfig: {
        "name": ["", None],
        "sample_rate": NO_COUNT,
        "heads": [(), ("onset",), ("frame", "loudness"), ("frame", "onset", "onset")],
        "calibration": NO_TRUTH,
    },
}


@pytest.mark.parametrize("kind", WRONG)
def test_a_field_out_of_range_is_named(kind: type) -> None:
    for name, values in WRONG[kind].items():
        for value in values:
            # The look-ahead may be named as the lower bound of the kernel lengths.
            named = rf"^{name} must|^kernel_lengths must .* {name} of"
            with pytest.raises(ValueError, match=named):
                kind(**{name: value})


def test_every_field_is_checked() -> None:
    checked_elsewhere = {"front_end", "rse"}  # configurations themselves
    for kind, of_kind in WRONG.items():
        names = {field.name for field in fields(kind)}
        assert names - checked_elsewhere == of_kind.keys(), kind


@pytest.mark.parametrize(
    ("name", "value"), [("vocabulary", 0), ("classes", 0), ("word_features", -1)]
)
def test_a_network_over_symbols_has_ranges_too(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"^{name} must be a whole number"):
        replace(SymbolConfig(vocabulary=5, classes=4), **{name: value})


@pytest.mark.parametrize(
    "change", [{"kind": "other"}, {"rse": {"maps": 4, "wings": 2}}, {"wings": 2}]
)
def test_what_is_no_network_over_symbols_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="not the configuration of a symbol network"):
        SymbolConfig.from_json({**SymbolConfig(5, 4).to_json(), **change})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"front_end": {"kind": "wavelet"}}, "wavelet"),
        ({"colour": 3}, "colour"),
        ({"heads": ["onset"]}, "frame"),
    ],
)
def test_configurations_with_unknown_parts_are_refused(
    change: dict[str, object], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        ModelConfig.from_json({**LIVE.to_json(), **change})


def test_fields_that_do_not_go_together_are_named() -> None:
    with pytest.raises(ValueError, match="maps must be at least 2"):
        ModelConfig(rse=RSEConfig(maps=1))
    with pytest.raises(ValueError, match=r"semitones must leave .* sample rate of 8000 Hz"):
        TranscriptionModel(replace(LIVE, sample_rate=8000))


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS.keys())
def test_configurations_come_back_from_json(config: ModelConfig) -> None:
    assert ModelConfig.from_json(json.loads(json.dumps(config.to_json()))) == config
