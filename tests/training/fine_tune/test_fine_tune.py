"""Fine-tuning from a folder to weights that load, on tones and a tiny network."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import nbformat
import numpy as np
import pytest
import soundfile
import torch

from model.config import SAMPLE_RATE, WINDOW
from model.storage import load, save_weights
from model.transcriber import TranscriptionModel
from rse_transcribe import command
from tests.fakes import FAKE_PITCHES, play
from tests.networks import TINY
from tests.paths import REPOSITORY
from tests.service.servers import server_starter
from tests.training.conftest import same_weights
from training.fine_tune import __main__ as fine_tune
from training.fine_tune import choose
from training.fine_tune.collection import Own
from training.fine_tune.task import OWN, FineTuneTask
from training.loop.loop import LoopConfig
from training.music.families import Passage, recorded_passage
from training.music.losses import DistillationConfig, Teacher
from training.music.notes import FRAME_UNKNOWN, notes_of
from training.music.real import RealRecording
from training.music.synth.config import SynthConfig
from training.music.synth.dataset import empty_batch, synth_stream
from training.music_task import MusicConfig, to_tensors

SECONDS = 5.5  # a recording must have 5 s and 8 notes


def tones(seed: int) -> list[tuple[int, float, float]]:
    rng = np.random.default_rng(seed)
    onsets = np.arange(0.5, SECONDS - 0.5, 0.5)
    return [(FAKE_PITCHES[int(rng.integers(4))], float(on), float(on) + 0.4) for on in onsets]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "recordings"
    folder.mkdir()
    for number in range(3):
        notes = tones(number)
        soundfile.write(folder / f"{number}.wav", play(notes, SECONDS, 16_000), 16_000)
        rows = [f"{on}\t{off}\t{pitch}" for pitch, on, off in notes]
        (folder / f"{number}.tsv").write_text("\n".join(rows))
    return folder


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch, synth_config: SynthConfig) -> None:
    monkeypatch.setattr("training.fine_tune.__main__.CACHE", synth_config.cache)
    monkeypatch.setattr("training.fine_tune.__main__.CHOOSE_PASSAGES", 1)
    monkeypatch.setattr("training.fine_tune.__main__.TEST_PASSAGES", 1)
    monkeypatch.setattr("training.fine_tune.__main__.FAMILY_S", 2.0)
    monkeypatch.setattr("training.fine_tune.choose.FACTORS", (0.0, 1.0))

    def here(config: SynthConfig, size: int, _: int, seed: int):  # type: ignore[no-untyped-def]
        return synth_stream(config, size, 0, seed)

    monkeypatch.setattr("training.fine_tune.task.synth_stream", here)


def test_a_folder_becomes_weights_and_a_report_also_in_two_parts(
    folder: Path,
    tiny_weights: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out, parts = tmp_path / "bells", tmp_path / "parts"
    arguments = [str(folder), "--model", str(tiny_weights), "--labels", "performance"]
    arguments += ["--steps", "2", "--out"]
    assert fine_tune.main([*arguments, str(out)]) == 0
    printed = capsys.readouterr().out
    assert "split: 2 recordings to train, their last quarters to choose, 1 to test" in printed
    assert "onset_f1" in printed
    report = json.loads((out / "report.json").read_text())
    names = report["recordings"]
    assert names["train"] == names["choose"]
    assert sorted([*names["train"], *names["test"]]) == ["0", "1", "2"]
    assert {row["group"] for row in report["comparison"]} == {OWN}
    tuned = load(out / "bells.safetensors")
    assert tuned.config.name == "bells"
    assert tuned.card["fine_tuned"] == report
    assert [stage["steps"] for stage in tuned.card["training"]["earlier"]] == [7]
    check_loading(out / "bells.safetensors", folder / "0.wav")
    assert fine_tune.main([*arguments, str(out)]) == 1
    assert "already contains a run" in capsys.readouterr().err

    monkeypatch.setattr(fine_tune, "LoopConfig", partial(LoopConfig, max_steps=1))
    assert fine_tune.main([*arguments, str(parts)]) == 0
    assert "stopped at step 1 of 2" in capsys.readouterr().out
    assert not (parts / "report.json").exists()
    assert fine_tune.main(["--out", str(parts), "--resume"]) == 0
    assert (parts / "report.json").exists()
    assert same_weights(out, parts)


def check_loading(weights: Path, recording: Path) -> None:
    """Transcribe a recording with weights, in a real service and with the command."""
    name, folder = weights.stem, weights.parent
    with server_starter(folder) as start:
        server = start("service", "--port", "{port}", RSE_MODEL=str(weights), RSE_WORKERS="1")
        info = httpx.get(f"{server.url}/info", timeout=60).json()
        assert info["model"] == info["card"]["name"] == name
        with recording.open("rb") as file:
            response = httpx.post(f"{server.url}/transcribe", files={"file": file}, timeout=60)
        assert response.status_code == 200
        assert server.terminate() == 0
    midi = folder / "result.mid"
    assert command.main([str(recording), "--model", str(weights), "-o", str(midi)]) == 0
    assert midi.read_bytes()[:4] == b"MThd"


def test_rendered_audio_is_mixed_in_and_measured(
    folder: Path, synth_root: Path, tiny_weights: Path, tmp_path: Path
) -> None:
    out = tmp_path / "bells"
    arguments = [str(folder), "--out", str(out), "--model", str(tiny_weights)]
    arguments += ["--labels", "performance", "--steps", "1", "--rendered", str(synth_root)]
    assert fine_tune.main(arguments) == 0
    rows = json.loads((out / "report.json").read_text())["comparison"]
    groups = {row["group"] for row in rows}
    assert {OWN, "piano", "bowed", "no notes", "all families"} <= groups
    false = next(row for row in rows if row["group"] == "no notes")
    assert false["figure"] == "false_notes_min"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["{folder}/none"], "not a folder"),
        (["{folder}", "--model", "none"], "no weights"),
        (["--resume"], "nothing to resume"),
    ],
)
def test_what_is_missing_is_named(
    arguments: list[str],
    message: str,
    folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = [word.format(folder=folder) for word in arguments]
    assert fine_tune.main([*words, "--out", str(tmp_path / "out")]) == 1
    assert message in capsys.readouterr().err


def recording(notes: list[tuple[int, float, float]]) -> RealRecording:
    audio = np.rint(32767 * play(notes, SECONDS, SAMPLE_RATE)).astype(np.int16)
    pitch, onset, offset = (np.array(column) for column in zip(*notes, strict=True))
    return RealRecording("tones", audio, notes_of(onset, offset, pitch), np.zeros((0, 4)))


def test_own_windows_have_labels_and_the_others_predictions(tiny_weights: Path) -> None:
    config = MusicConfig(
        model=TINY,
        batch_size=6,
        distillation=DistillationConfig(str(tiny_weights)),
    )
    task = FineTuneTask(config, [recording(tones(1))], [], [], rendered=False)
    batch = next(task.batches(seed=1, step=0))
    again = next(task.batches(seed=1, step=0))
    assert all(np.array_equal(*both) for both in zip(batch.targets, again.targets, strict=True))
    assert np.array_equal(batch.audio, again.audio)
    assert batch.targets.frame[:3].any(axis=(1, 2)).all()
    assert not batch.targets.frame[3:].any()
    assert np.abs(batch.audio[3:]).max(axis=1).min() > 0
    loss, parts = task.loss(batch)
    loss.backward()
    assert torch.isfinite(loss)
    assert all(torch.isfinite(part) for part in parts.values())


def test_predictions_replace_labels(tiny_weights: Path) -> None:
    config = DistillationConfig(str(tiny_weights))
    windows = 0.3 * torch.randn(2, WINDOW)
    predicted = load(tiny_weights, dtype=torch.float32).predict(windows)
    batch = empty_batch(2)._replace(audio=windows.numpy())
    batch.targets.frame_unknown[:] = 1
    _, labels = to_tensors(batch, torch.device("cpu"))
    targets = Teacher(config, TINY).replaced(windows, labels)
    heads = TINY.heads
    for head in ("frame", "onset", "velocity", "offset"):
        assert torch.equal(getattr(targets, head), predicted[:, heads.index(head)])
    assert torch.equal(targets.pedal, predicted[:, heads.index("pedal"), :, 60])
    assert not targets.frame_unknown.any()
    certain = targets.instrument > 0
    assert torch.equal(certain, targets.onset > 0.3)
    assert targets.instrument.max() <= sum(head.startswith("instrument") for head in heads)


def passage(notes: list[tuple[int, float, float]]) -> Passage:
    one = recording(notes)
    (cut,) = choose.own_passages([Own(one, one, "performance", 1, 0, 0)])
    return cut


def network(seed: int, tmp_path: Path) -> TranscriptionModel:
    torch.manual_seed(seed)
    path = tmp_path / f"{seed}.safetensors"
    save_weights(TranscriptionModel(TINY), {"config": TINY.to_json()}, path)
    return load(path, dtype=torch.float32)


def test_the_factor_is_chosen_on_the_own_recordings_unless_others_lose(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = network(0, tmp_path), network(1, tmp_path)
    half = choose.interpolated(first, second, 0.5)
    name = "network.embed.weight"
    weights = [one.state_dict()[name] for one in (first, second, half)]
    assert torch.allclose((weights[0] + weights[1]) / 2, weights[2])

    monkeypatch.setattr(choose, "FACTORS", (0.0, 0.25, 0.5, 0.75, 1.0))
    gains = {0.0: 0.3, 0.25: 0.5, 0.5: 0.598, 0.75: 0.6, 1.0: 0.7}
    losses = {0.0: 0.8, 0.25: 0.8, 0.5: 0.797, 0.75: 0.797, 1.0: 0.7}
    voices = dict.fromkeys(gains, 0.5)

    class Scored:
        def __init__(self, value: float) -> None:
            self.value = value

        def score(self, _: object) -> float:
            return self.value

    monkeypatch.setattr(choose, "interpolated", lambda _, __, factor: factor)
    monkeypatch.setattr(
        choose,
        "predict_passages",
        lambda factor, _: {
            OWN: [Scored(gains[factor])],
            "piano": [Scored(losses[factor])],
            "voice": [Scored(voices[factor])],
        },
    )
    factor, table = choose.choose_factor(first, second, {})
    assert factor == 0.5  # .75 gains next to nothing more, and with 1 the piano loses too much
    assert table[1.0] == {OWN: 0.7, "piano": 0.7, "voice": 0.5}
    losses |= {0.5: 0.83, 0.75: 0.83}
    voices |= {0.5: 0.47, 0.75: 0.47}
    assert choose.choose_factor(first, second, {})[0] == 0.25  # the mean hides what voices lose


def test_figures_leave_out_what_a_cut_hides() -> None:
    long = [(57, 0.5, 5.0), *tones(1)]
    one = recording(long)
    parts = recorded_passage(one, 3 * SAMPLE_RATE, 2 * SAMPLE_RATE)
    assert (parts.unknown[:, 3] == FRAME_UNKNOWN).any()
    assert parts.notes.onset.min() >= 0


def test_a_comparison_has_intervals() -> None:
    before = {OWN: [{"onset_f1": 0.5}, {"onset_f1": 0.7}], "piano": [{"onset_f1": 0.9}]}
    after = {OWN: [{"onset_f1": 0.6}, {"onset_f1": 0.9}], "piano": [{"onset_f1": 0.8}]}
    own, piano, pooled = choose.comparison(before, after)
    assert own["difference"] == pytest.approx(0.15)
    low, high = own["interval"]
    assert 0.1 - 1e-9 <= low < high <= 0.2 + 1e-9
    assert piano["interval"] is None
    assert pooled["group"] == "all families"
    assert "+0.150" in choose.table([own, piano])


def test_the_notebook_runs(
    tiny_weights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = REPOSITORY / "clients" / "examples" / "fine_tune.ipynb"
    notebook = nbformat.read(path, as_version=4)
    options, recordings, *cells = (
        cell.source for cell in notebook.cells if cell.cell_type == "code"
    )
    for long, short in (("range(5)", "range(3)"), ("12 *", "6 *"), ("10.5,", "5.0,")):
        assert long in recordings
        recordings = recordings.replace(long, short)
    names: dict[str, Any] = {}
    exec(options, names)
    names |= {"MODEL": str(tiny_weights), "LABELS": "performance", "STEPS": 1}
    for cell in (recordings, *cells):
        exec(cell, names)
    assert (tmp_path / "bells" / "report.json").is_file()
    assert names["transcription"].notes is not None
    assert load(names["weights"]).config.name == "bells"
