"""Tests of model cards: their pages agree with the JSON and attribute every source."""

import json
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from model.storage import WEIGHTS, shipped
from training.music.synth.config import SynthConfig
from training.shipping.card import (
    ATTRIBUTIONS,
    attributions,
    folder_attributions,
    model_card,
    shares_alike,
    sources,
    with_sources,
)

CARD: dict[str, Any] = {
    "name": "mine",
    "config": {},
    "data": {
        "batch_size": 8,
        "synth": {"held_out": ["violin"], "pedal_cap_s": 8.0, "real_probability": 0.3},
    },
    "training": {"steps": 100, "hours": 1.0, "loop": {"learning_rate": 0.001}},
    "validation": {},
    "tracker": {"onset_threshold": 0.5},
}
SOURCE = {"attribution": "A pianist", "licence": "CC0", "instruments": ["fugue"]}


@pytest.mark.parametrize("name", shipped())
def test_shipped_pages_match_their_cards(name: str) -> None:
    card = json.loads((WEIGHTS / f"{name}.json").read_text())
    assert (WEIGHTS / f"{name}.md").read_text() == model_card(card)


def test_shipped_attributions_name_every_source() -> None:
    page = (WEIGHTS / ATTRIBUTIONS).read_text()
    assert page == folder_attributions(WEIGHTS)
    share_alike, others = page.split("## Other licences")
    for name in shipped():
        card = json.loads((WEIGHTS / f"{name}.json").read_text())
        for source in chain(*card["sources"].values()):
            assert source["attribution"] in (share_alike if shares_alike(source) else others)


def test_the_page_states_the_share_of_real_recordings() -> None:
    assert "recordings of music" not in model_card(CARD)
    page = model_card(CARD | {"sources": {"recordings": [SOURCE]}})
    assert "At most 30 % of the training excerpts are recordings of music." in page


def test_a_card_collects_the_sources_of_its_stages_without_duplicates() -> None:
    other = SOURCE | {"instruments": ["fugue", "prelude"]}
    scores = {"attribution": "An archive", "licence": "CC0", "pieces": 3}
    earlier = {"name": "before", "sources": {"sounds": [SOURCE], "scores": [scores]}}
    training = {**CARD["training"], "earlier": [earlier]}
    teacher = {"sounds": [other], "scores": [scores | {"pieces": 5}]}
    rooms = {"rooms": [SOURCE | {"licence": "MIT"}]}
    card = with_sources(CARD | {"training": training, "sources": teacher}, rooms)
    assert card["sources"] == {**teacher, **rooms}
    assert card["training"]["earlier"] == [{"name": "before"}]


def attribution_lines(config: SynthConfig) -> list[str]:
    return attributions({"mine": sources(config)}).splitlines()


def test_all_training_sources_are_attributed(synth_config: SynthConfig) -> None:
    lines = attribution_lines(synth_config)
    assert "- synthetic (MIT): 6 pieces" in lines
    assert "- The players of the violin (MIT): violin_one, violin_vso2" in lines
    assert lines[lines.index("## Share-alike licences") + 2] == "## Other licences"


def test_sources_of_several_weights_are_named_once() -> None:
    other = SOURCE | {"instruments": ["prelude"]}
    page = attributions({"one": {"sounds": [SOURCE]}, "two": {"sounds": [SOURCE, other]}})
    assert "- A pianist (CC0): fugue, prelude\n" in page
    page = attributions({"one": {"sounds": [SOURCE]}, "two": {}})
    assert "- A pianist (CC0): fugue [one]\n" in page


def test_rooms_voices_and_recordings_are_attributed(
    synth_config: SynthConfig, tmp_path: Path
) -> None:
    for file in ("bank_index.json", "midi_index.json"):
        (tmp_path / file).write_bytes((synth_config.root / file).read_bytes())
    church = {"licence": "CC BY-SA 3.0", "attribution": "A church"}
    rooms = [church | {"name": "Church_L"}, church | {"name": "Church_R"}]
    (tmp_path / "rooms.json").write_text(json.dumps({"rooms": rooms}))
    real = [
        {"id": "fugue", "score": "fugue.mid", "licence": "CC0", "attribution": "A pianist"}
        | {"score_licence": "CC BY-SA 4.0", "score_attribution": "A typesetter"},
        {"id": "unused", "score": None, "licence": "CC0", "attribution": "unused"},
        {"id": "song", "label_kind": "exact", "licence": "CC BY 4.0", "attribution": "A singer"},
    ]
    speech = [{"speaker": "S1", "licence": "CC BY 4.0", "attribution": "A reader"}]
    (tmp_path / "voices").mkdir()
    (tmp_path / "voices" / "speech.json").write_text(json.dumps({"files": speech}))
    clips = [{"class": "flute", "licence": "CC BY 4.0", "attribution": "A flautist"}]
    (tmp_path / "phrases.json").write_text(json.dumps(clips))
    (tmp_path / "index.json").write_text(json.dumps(real))
    lines = attribution_lines(replace(synth_config, root=tmp_path, real_root=tmp_path))
    assert {
        "- A pianist (CC0): fugue",
        "- A singer (CC BY 4.0): song",
        "- A reader (CC BY 4.0): S1",
        "- A flautist (CC BY 4.0): flute",
    } <= set(lines)
    share_alike = lines[: lines.index("## Other licences")]
    assert "- A church (CC BY-SA 3.0): Church" in share_alike
    assert "- A typesetter (CC BY-SA 4.0): fugue" in share_alike
    assert not any("unused" in line for line in lines)


def test_data_without_a_licence_are_rejected(synth_config: SynthConfig, tmp_path: Path) -> None:
    for file in ("bank_index.json", "midi_index.json"):
        (tmp_path / file).write_bytes((synth_config.root / file).read_bytes())
    (tmp_path / "phrases.json").write_text(json.dumps([{"class": "flute", "licence": "CC0"}]))
    with pytest.raises(ValueError, match="an entry without attribution: .*flute"):
        sources(replace(synth_config, root=tmp_path))
