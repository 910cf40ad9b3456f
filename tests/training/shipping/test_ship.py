"""The choice of settings when weights are shipped; the choosers themselves have their own tests."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from model.transcriber import TranscriptionModel
from service.notes.tracker_settings import TrackerSettings
from training.music.synth.config import SynthConfig
from training.shipping import ship
from training.shipping.choosing import Chooser


def write_json(weights: Path, card: dict[str, Any]) -> None:
    weights.with_suffix(".json").write_text(json.dumps(card))


def test_choosers_build_on_each_other_and_need_their_heads(
    tiny_weights: Path, synth_config: SynthConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[TrackerSettings, int, float]] = []

    def chooser(pieces: int, head: str, **choice: float) -> Chooser:
        def choose(
            transcriber: TranscriptionModel, _: SynthConfig, pieces: int, seconds: float
        ) -> TrackerSettings:
            asked.append((TrackerSettings.from_card(transcriber.card), pieces, seconds))
            return replace(asked[-1][0], **choice)  # type: ignore[arg-type]

        return Chooser(choose, pieces, 9.0, frozenset({head}))

    choosers = (
        chooser(3, "onset", onset_threshold=0.3),
        chooser(4, "sitar", release_frames=7),
        chooser(5, "pedal", min_note_frames=9),
    )
    monkeypatch.setattr(ship, "CHOOSERS", choosers)
    monkeypatch.setattr(ship, "write_card", write_json)
    where = ["--synth", str(synth_config.root), "--cache", str(synth_config.cache)]
    run = [str(tmp_path), "--weights", "last", "--out", str(tmp_path), "--windows", "2"]
    for suffix in (".safetensors", ".json"):
        (tmp_path / f"last{suffix}").write_bytes(tiny_weights.with_suffix(suffix).read_bytes())
    assert ship.main([*run, *where]) == 0
    first = TrackerSettings(onset_threshold=0.3)
    assert asked == [(TrackerSettings(), 3, 9.0), (first, 5, 9.0)]
    tracker = json.loads((tmp_path / "live.json").read_text())["tracker"]
    assert (tracker["onset_threshold"], tracker["min_note_frames"]) == (0.3, 9)
