"""The page of a model card says what its JSON does."""

import json
from typing import Any

import pytest

from model.storage import WEIGHTS, shipped
from training.shipping.card import CLASSIFIER, model_card

CARD: dict[str, Any] = {
    "name": "mine",
    "config": {},
    "data": {
        "batch_size": 8,
        "synth": {"held_out": ["violin"], "pedal_cap_s": 8.0, "real_probability": 0.3},
    },
    "training": {"steps": 100, "hours": 1.0, "loop": {"learning_rate": 0.001}},
    "validation": {},
    "tracker": {"onset_classifier": {"layers": []}},
}
SOURCE = {"attribution": "A pianist", "licence": "CC0", "instruments": ["fugue"]}


@pytest.mark.parametrize("name", shipped())
def test_the_shipped_pages_are_those_of_their_cards(name: str) -> None:
    card = json.loads((WEIGHTS / f"{name}.json").read_text())
    assert (WEIGHTS / f"{name}.md").read_text() == model_card(card)


def test_what_is_said_of_the_training_audio_follows_from_its_sources() -> None:
    page = model_card(CARD | {"sources": {}})
    assert "None of the training excerpts are recordings of music" in page
    assert f"{CLASSIFIER}.\n" in page
    page = model_card(CARD | {"sources": {"recordings": [SOURCE], "backgrounds": [SOURCE]}})
    assert "At most 30 % of the training excerpts are recordings of music" in page
    assert f"{CLASSIFIER}, to the recordings of training, to the speech, drums and noise" in page
    page = model_card(CARD | {"data": {"batch_size": 8, "recordings": 320, "archive": "MusicNet"}})
    assert "excerpts" not in page
