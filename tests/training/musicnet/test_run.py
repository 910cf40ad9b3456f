"""Training on an archive from the command line."""

from dataclasses import replace
from pathlib import Path

import pytest

from model.config import PAPER, RSEConfig
from model.storage import read_card
from tests.training.conftest import same_weights
from tests.training.musicnet.conftest import HEADER
from training.presets import MUSIC_PRESETS
from training.run import main


@pytest.fixture(autouse=True)
def _small_preset(monkeypatch: pytest.MonkeyPatch) -> None:
    """The paper's preset with a tiny network and four steps."""
    preset = MUSIC_PRESETS["paper"]
    small = replace(
        preset,
        music=replace(
            preset.music,
            model=replace(PAPER, rse=RSEConfig(maps=4, blocks=1)),
            batch_size=2,
            workers=2,
            validation_windows=6,
        ),
        loop=replace(preset.loop, steps=4, bfloat16=False, log_steps=2),
    )
    monkeypatch.setitem(MUSIC_PRESETS, "paper", small)


def arguments(archive: Path, out: Path) -> list[str]:
    data = ["--data", "musicnet", "--data-dir", str(archive)]
    return ["musicnet", "--preset", "paper", *data, "--out", str(out)]


def test_the_papers_preset_trains_on_the_archive_and_resumes_bit_for_bit(
    archive: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert main(arguments(archive, tmp_path / "once")) == 0
    assert "lacks the recordings [2384, 2514, 2567, 1876, 2382]" in caplog.text
    card = read_card(tmp_path / "once" / "best.safetensors")
    assert 0 < card["validation"]["ap_middle"] <= 1
    assert card["data"]["test"] == [2303, 1819]
    assert card["config"]["sample_rate"] == 11_000
    assert len(list((archive / "resampled-11000").glob("*.npy"))) == 3 + 2  # train, validation

    slices = arguments(archive, tmp_path / "slices")
    assert main([*slices, "--loop.max-steps", "3"]) == 0
    assert main([*slices, "--resume"]) == 0
    assert same_weights(tmp_path / "once", tmp_path / "slices")


def test_bad_archives_are_a_message_and_a_status(
    archive: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments(tmp_path / "nowhere", tmp_path / "run")) == 1
    assert "is not the MusicNet archive" in capsys.readouterr().err
    (archive / "train_labels" / "1728.csv").write_text(f"{HEADER}\n0,99999999,1,60,0,1,Quarter\n")
    assert main(arguments(archive, tmp_path / "run")) == 1
    assert "does not belong to" in capsys.readouterr().err
    assert not list((tmp_path / "run").glob("*.safetensors"))
