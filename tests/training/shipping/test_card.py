"""The page of a model card agrees with its JSON and attributes every source."""

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
    Sources,
    attributions,
    folder_attributions,
    model_card,
    shares_alike,
    sources,
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
def test_the_shipped_pages_are_those_of_their_cards(name: str) -> None:
    card = json.loads((WEIGHTS / f"{name}.json").read_text())
    assert (WEIGHTS / f"{name}.md").read_text() == model_card(card)


def test_the_shipped_attributions_name_every_source_of_every_card() -> None:
    page = (WEIGHTS / ATTRIBUTIONS).read_text()
    assert page == folder_attributions(WEIGHTS)
    alike, others = page.split("## Other licences")
    for name in shipped():
        for one in chain(*json.loads((WEIGHTS / f"{name}.json").read_text())["sources"].values()):
            assert one["attribution"] in (alike if shares_alike(one) else others)


def lines_of(found: Sources) -> list[str]:
    return attributions({"mine": found}).splitlines()


def test_everything_used_is_attributed(synth_config: SynthConfig) -> None:
    lines = lines_of(sources(synth_config))
    assert "- made for the tests (MIT): 6 pieces" in lines
    assert "- The players of the violin (MIT): violin_one, violin_vso2" in lines
    assert lines[lines.index("## Share-alike licences") + 2] == "## Other licences"


def test_what_weights_share_is_named_once() -> None:
    other = SOURCE | {"instruments": ["prelude"]}
    page = attributions({"one": {"sounds": [SOURCE]}, "two": {"sounds": [SOURCE, other]}})
    assert "- A pianist (CC0): fugue, prelude\n" in page
    page = attributions({"one": {"sounds": [SOURCE]}, "two": {}})
    assert "- A pianist (CC0): fugue [one]\n" in page


def test_rooms_noises_and_recordings_are_named(synth_config: SynthConfig, tmp_path: Path) -> None:
    for file in ("bank_index.json", "midi_index.json"):
        (tmp_path / file).write_bytes((synth_config.root / file).read_bytes())
    alike = {"licence": "CC BY-SA 3.0", "attribution": "A church"}
    rooms = [alike | {"name": "Church_L"}, alike | {"name": "Church_R"}]
    (tmp_path / "rooms.json").write_text(json.dumps({"rooms": rooms}))
    real = [
        {"id": "fugue", "score": "fugue.mid", "licence": "CC0", "attribution": "A pianist"}
        | {"score_licence": "CC BY-SA 4.0", "score_attribution": "A typesetter"},
        {"id": "unused", "score": None, "licence": "CC0", "attribution": "Nobody"},
        {"id": "song", "label_kind": "exact", "licence": "CC BY 4.0", "attribution": "A singer"},
    ]
    speech = [{"speaker": "S1", "licence": "CC BY 4.0", "attribution": "A reader"}]
    (tmp_path / "voices").mkdir()
    (tmp_path / "voices" / "speech.json").write_text(json.dumps({"files": speech}))
    clips = [{"class": "flute", "licence": "CC BY 4.0", "attribution": "A flautist"}]
    (tmp_path / "phrases.json").write_text(json.dumps(clips))
    (tmp_path / "index.json").write_text(json.dumps(real))
    lines = lines_of(sources(replace(synth_config, root=tmp_path, real_root=tmp_path)))
    assert "- A church (CC BY-SA 3.0): Church" in lines
    assert "- A pianist (CC0): fugue" in lines
    assert "- A singer (CC BY 4.0): song" in lines
    assert "- A reader (CC BY 4.0): S1" in lines
    assert "- A flautist (CC BY 4.0): flute" in lines
    named = lines[: lines.index("## Other licences")]
    assert "- A church (CC BY-SA 3.0): Church" in named
    assert "- A typesetter (CC BY-SA 4.0): fugue" in named
    assert not any("Nobody" in line for line in lines)
