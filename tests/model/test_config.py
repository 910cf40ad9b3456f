"""Tests of the networks' configurations and of the classes of instruments."""

import json
from dataclasses import fields
from typing import Any

import pytest

from model.config import (
    ACCURATE,
    HEADS,
    INSTRUMENTS,
    LIGHT,
    LIVE,
    PAPER_TEXT,
    RELEASED,
    FilterbankConfig,
    ModelConfig,
    RSEConfig,
    StridedConfig,
)
from model.instruments import INSTRUMENT_HEADS, PROGRAMS, UNKNOWN, class_of, predicted_instruments
from model.symbols import SymbolConfig

CONFIGURATIONS = (RSEConfig, StridedConfig, FilterbankConfig, ModelConfig, SymbolConfig)
SYMBOLS = SymbolConfig(5, 4)
REQUIRED: dict[type, dict[str, Any]] = {SymbolConfig: {"vocabulary": 5, "classes": 4}}


@pytest.mark.parametrize("kind", CONFIGURATIONS)
def test_each_invalid_field_is_named(kind: type) -> None:
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
        (LIVE, {"front_end": {**LIVE.to_json()["front_end"], "lookahead": 640}}, "lookahead.*512"),
        (LIVE, {"colour": 3}, "colour"),
        (LIVE, {"heads": ["onset"]}, "frame"),
        (LIVE, {"heads": ["frame", "instrument:piano"]}, "or none"),
        (LIVE, {"heads": ["frame", *reversed(INSTRUMENT_HEADS)]}, "must end with"),
        (LIVE, {"heads": ["frame", *INSTRUMENT_HEADS, "onset"]}, "must end with"),
        (PAPER_TEXT, {"rse": {"maps": 1}}, "maps must be at least 2"),
    ],
)
def test_unknown_fields_and_kinds_are_rejected(
    config: ModelConfig | SymbolConfig, change: dict[str, object], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        type(config).from_json({**config.to_json(), **change})


@pytest.mark.parametrize("config", [LIVE, LIGHT, ACCURATE, PAPER_TEXT, RELEASED])
def test_json_round_trip_preserves_the_configuration(config: ModelConfig) -> None:
    assert ModelConfig.from_json(json.loads(json.dumps(config.to_json()))) == config


def test_each_program_maps_to_its_class() -> None:
    assert tuple(PROGRAMS) == INSTRUMENTS
    assert [class_of(program) for program in PROGRAMS.values()] == [*range(len(INSTRUMENTS))]
    assert class_of(48) == class_of(127) == UNKNOWN  # a string section, a gunshot


def test_the_heads_determine_the_predicted_classes() -> None:
    assert predicted_instruments(HEADS) == INSTRUMENTS
    heads = ("frame", "instrument:cello", "instrument:piano")
    assert predicted_instruments(heads) == ("piano", "cello")
    assert predicted_instruments(("frame", "onset")) == ()
