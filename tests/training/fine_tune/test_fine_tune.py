"""Tests of fine-tuning a small network with a folder of recorded tones."""

import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import nbformat
import numpy as np
import pytest
import soundfile
import torch

from model.config import SAMPLE_RATE, WINDOW
from model.storage import load, save_weights
from model.transcriber import TranscriptionModel
from rse_transcribe import command
from tests.commands import run
from tests.fakes import FAKE_PITCHES, play
from tests.networks import TINY
from tests.paths import REPOSITORY
from tests.training.conftest import same_weights
from training.fine_tune import __main__ as fine_tune
from training.fine_tune import choose
from training.fine_tune.task import OWN, FineTuneTask
from training.loop.loop import LoopConfig, Trainer
from training.music.families import recorded_passage
from training.music.losses import DistillationConfig, Teacher, usable_frames
from training.music.notes import notes_of
from training.music.real import RealRecording
from training.music.synth.config import SynthConfig
from training.music.synth.dataset import empty_batch, synth_stream
from training.music_task import MusicConfig, to_tensors

SECONDS = 5.5  # A recording must have at least 5 s and 8 notes.


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
def _short_runs(monkeypatch: pytest.MonkeyPatch, synth_config: SynthConfig) -> None:
    monkeypatch.setattr("training.fine_tune.__main__.CACHE", synth_config.cache)
    monkeypatch.setattr("training.fine_tune.__main__.CHOOSE_PASSAGES", 1)
    monkeypatch.setattr("training.fine_tune.__main__.TEST_PASSAGES", 1)
    monkeypatch.setattr("training.fine_tune.__main__.FAMILY_S", 2.0)
    monkeypatch.setattr("training.fine_tune.choose.FACTORS", (0.0, 1.0))

    def without_workers(config, size, context, _, seed):  # type: ignore[no-untyped-def]
        small = replace(config, pool_excerpts=2, excerpt_s=5.0)
        return synth_stream(small, size, context, 0, seed)

    monkeypatch.setattr("training.fine_tune.task.synth_stream", without_workers)


def test_fine_tuning_writes_weights_and_a_report(
    folder: Path, tiny_weights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, resumed_out = tmp_path / "bells", tmp_path / "resumed"
    arguments = folder, "--model", tiny_weights, "--labels", "performance", "--steps", 2, "--out"
    status, printed, _ = run(fine_tune.main, *arguments, out)
    assert status == 0
    assert "split: 2 recordings for training, their last quarters for validation, 1 for" in printed
    assert "onset_f1" in printed
    report = json.loads((out / "report.json").read_text())
    names = report["recordings"]
    assert names["train"] == names["validation"]
    assert sorted([*names["train"], *names["test"]]) == ["0", "1", "2"]
    assert {row["group"] for row in report["comparison"]} == {OWN}
    tuned = load(out / "bells.safetensors")
    assert tuned.config.name == "bells"
    assert tuned.card["fine_tuned"] == report
    assert [stage["steps"] for stage in tuned.card["training"]["earlier"]] == [7]
    midi = "--model", out / "bells.safetensors", "-o", tmp_path / "result.mid"
    assert run(command.main, folder / "0.wav", *midi).status == 0
    status, _, error = run(fine_tune.main, *arguments, out)
    assert status == 1
    assert "already contains a run" in error

    monkeypatch.setattr(fine_tune, "LoopConfig", partial(LoopConfig, max_minutes=1e-9))
    monkeypatch.chdir(folder.parent)
    status, printed, _ = run(fine_tune.main, folder.name, *arguments[1:], resumed_out)
    monkeypatch.chdir(folder)  # a run can be resumed from any folder
    assert status == 0
    assert "stopped at step 1 of 2" in printed
    assert not (resumed_out / "report.json").exists()
    resume = "--out", resumed_out, "--resume"
    for file in folder.glob("2.*"):  # A resumed run with another split would mix train and test.
        (folder / f"new{file.suffix}").write_bytes(file.read_bytes())
    status, _, error = run(fine_tune.main, *resume)
    assert status == 1
    assert "other usable recordings (0, 1, 2, new)" in error
    for file in folder.glob("new.*"):
        file.unlink()
    error = run(fine_tune.main, *resume, "--steps", 9).error
    assert "a resumed run keeps its options: omit --steps 9" in error
    error = run(fine_tune.main, folder.parent, *resume).error
    assert f"omit FOLDER {folder.parent}" in error
    monkeypatch.chdir(folder.parent)
    assert run(fine_tune.main, folder.name, *resume).status == 0
    assert (resumed_out / "report.json").exists()
    assert same_weights(out, resumed_out)
    for other in ("[]", '{"command": "algorithmic"}', "{}"):
        (resumed_out / fine_tune.CONFIG).write_text(other)
        assert "is not the configuration of a run" in run(fine_tune.main, *resume).error


@pytest.mark.parametrize("name", ["best", "last", "config", "report"])
def test_the_weights_cannot_replace_other_files_of_the_run(
    folder: Path, tmp_path: Path, name: str
) -> None:
    status, _, error = run(fine_tune.main, folder, "--model", "none", "--out", tmp_path / name)
    assert status == 2
    assert f"cannot be named {name}" in error


def test_a_run_without_a_state_resumes_from_the_initial_weights(
    folder: Path, tiny_weights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError("interrupted before training")

    out = tmp_path / "bells"
    arguments = folder, "--model", tiny_weights, "--labels", "performance", "--steps", 1
    with monkeypatch.context() as patch:
        patch.setattr(fine_tune, "read_folder", fail)
        assert run(fine_tune.main, *arguments, "--out", out).status == 1
    trainers: list[Trainer] = []

    def stop(trainer: Trainer) -> dict[str, float]:
        trainers.append(trainer)
        raise OSError("stopped")

    monkeypatch.setattr(Trainer, "run", stop)
    torch.manual_seed(1)  # not the seed of ``tiny_weights``
    assert run(fine_tune.main, "--out", out, "--resume").status == 1
    weights = trainers[0].task.network.state_dict()
    for name, tensor in load(tiny_weights, dtype=torch.float32).state_dict().items():
        assert torch.equal(weights[name], tensor)
    assert [stage["steps"] for stage in trainers[0].earlier] == [7]


def test_rendered_audio_is_added_and_reported(
    folder: Path, synth_root: Path, tiny_weights: Path, tmp_path: Path
) -> None:
    out = tmp_path / "bells"
    arguments = folder, "--model", tiny_weights, "--labels", "performance", "--steps", 1
    assert run(fine_tune.main, *arguments, "--rendered", synth_root, "--out", out).status == 0
    rows = json.loads((out / "report.json").read_text())["comparison"]
    groups = {row["group"] for row in rows}
    assert {OWN, "piano", "bowed", "no notes", "all families"} <= groups
    names = [
        source["attribution"]
        for source in load(out / "bells.safetensors").card["sources"]["sounds"]
    ]
    assert {"A flautist", "The players of the violin"} <= set(names)
    (no_notes,) = (row for row in rows if row["group"] == "no notes")
    assert no_notes["figure"] == "false_notes_min"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["{folder}/none"], "not a folder"),
        (["{folder}", "--model", "none"], "no weights"),
        (["--resume"], "nothing to resume"),
    ],
)
def test_missing_inputs_cause_an_error_message(
    arguments: list[str], message: str, folder: Path, tmp_path: Path
) -> None:
    arguments = [argument.format(folder=folder) for argument in arguments]
    status, _, error = run(fine_tune.main, *arguments, "--out", tmp_path / "out")
    assert status == 1
    assert message in error


def test_negative_learning_rates_are_rejected(folder: Path, tmp_path: Path) -> None:
    status, _, error = run(fine_tune.main, folder, "--out", tmp_path / "a", "--learning-rate", -1)
    assert status == 2
    assert "must be at least 0" in error


def test_weights_at_another_rate_are_rejected(folder: Path, tmp_path: Path) -> None:
    config, path = replace(TINY, sample_rate=16_000), tmp_path / "other.safetensors"
    save_weights(TranscriptionModel(config), {"config": config.to_json()}, path)
    status, _, error = run(fine_tune.main, folder, "--model", path, "--out", tmp_path / "out")
    assert status == 1
    assert "at 16000 Hz; fine-tuning needs weights at 11025 Hz" in error


def recording(notes: list[tuple[int, float, float]]) -> RealRecording:
    audio = np.rint(32767 * play(notes, SECONDS, SAMPLE_RATE)).astype(np.int16)
    pitch, onset, offset = (np.array(column) for column in zip(*notes, strict=True))
    return RealRecording("tones", audio, notes_of(onset, offset, pitch), np.zeros((0, 4)))


def test_half_of_a_batch_has_labels(tiny_weights: Path) -> None:
    """The other half has the teacher's predictions."""
    distillation = DistillationConfig(str(tiny_weights))
    config = MusicConfig(model=TINY, batch_size=6, distillation=distillation)
    task = FineTuneTask(config, [recording(tones(1))], [], [], rendered=False)
    batch, same_batch = (next(task.batches(seed=1, step=0)) for _ in range(2))
    assert all(map(np.array_equal, batch.targets, same_batch.targets))
    assert np.array_equal(batch.audio, same_batch.audio)
    assert batch.targets.frame[:3].any(axis=(1, 2)).all()
    assert not batch.targets.frame[3:].any()
    assert np.abs(batch.audio[3:]).max(axis=1).min() > 0
    loss, parts = task.loss(batch)
    loss.backward()
    assert torch.isfinite(loss)
    assert all(torch.isfinite(part) for part in parts.values())


def test_a_resumed_run_restores_the_shares_of_instruments(
    tiny_weights: Path, tmp_path: Path
) -> None:
    own = recording(tones(1))
    classes = (np.arange(len(own.notes)) % 3).astype(np.int8)
    own = replace(own, notes=own.notes.replaced(instrument=classes))
    config = MusicConfig(
        model=TINY, batch_size=2, distillation=DistillationConfig(str(tiny_weights))
    )
    passages = [recorded_passage(own, 0, 2 * SAMPLE_RATE)]

    def trainer(folder: str, max_minutes: float = 0) -> Trainer:
        torch.manual_seed(0)
        task = FineTuneTask(config, [own], [], passages, rendered=False)
        return Trainer(task, LoopConfig(steps=3, max_minutes=max_minutes), tmp_path / folder)

    trainer("once").run()
    trainer("sliced", 1e-9).run()
    resumed = trainer("sliced")
    resumed.resume()
    resumed.run()
    assert same_weights(tmp_path / "once", tmp_path / "sliced")


def test_the_teacher_replaces_unknown_labels(tiny_weights: Path) -> None:
    config = DistillationConfig(str(tiny_weights))
    windows = 0.3 * torch.randn(2, WINDOW)
    predicted = load(tiny_weights).predict(windows).float()
    batch = empty_batch(2)._replace(audio=windows.numpy())
    batch.targets.frame_unknown[:] = 1
    _, labels = to_tensors(batch, torch.device("cpu"))
    targets = Teacher(config, TINY).replaced(windows, labels)
    heads, stop = TINY.heads, usable_frames(TINY).stop
    for head in ("frame", "onset", "velocity", "offset"):
        torch.testing.assert_close(getattr(targets, head), predicted[:, heads.index(head)])
    torch.testing.assert_close(targets.pedal, predicted[:, heads.index("pedal"), :, 60])
    assert not targets.frame_unknown[:, :stop].any()
    assert targets.onset_unknown[:, stop:].all()
    is_new = targets.onset > 0.3
    assert torch.equal(targets.instrument[:, :stop] > 0, is_new[:, :stop])
    assert not targets.instrument[:, stop:].any()
    assert targets.instrument.max() <= sum(head.startswith("instrument") for head in heads)


def test_the_factor_is_limited_by_losses_of_other_families(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = (TranscriptionModel(TINY).eval() for _ in range(2))
    half = choose.interpolated(first, second, 0.5)
    name = "network.embed.weight"
    weights = [model.state_dict()[name] for model in (first, second, half)]
    assert torch.allclose((weights[0] + weights[1]) / 2, weights[2])

    monkeypatch.setattr(choose, "FACTORS", (0.0, 0.25, 0.5, 0.75, 1.0))
    own = {0.0: 0.3, 0.25: 0.5, 0.5: 0.598, 0.75: 0.6, 1.0: 0.7}
    piano = {0.0: 0.8, 0.25: 0.8, 0.5: 0.797, 0.75: 0.797, 1.0: 0.7}
    voice = dict.fromkeys(own, 0.5)

    def predict(factor: float, _: object) -> dict[str, list[SimpleNamespace]]:
        scores = {OWN: own[factor], "piano": piano[factor], "voice": voice[factor]}
        return {
            group: [SimpleNamespace(score=lambda _, score=score: score)]
            for group, score in scores.items()
        }

    monkeypatch.setattr(choose, "interpolated", lambda _, __, factor: factor)
    monkeypatch.setattr(choose, "predict_passages", predict)
    factor, table = choose.choose_factor(first, second, {})
    # 0.75 gains too little compared with 0.5. With 1, the piano loses too much.
    assert factor == 0.5
    assert table[1.0] == {OWN: 0.7, "piano": 0.7, "voice": 0.5}
    piano |= {0.5: 0.83, 0.75: 0.83}
    voice |= {0.5: 0.47, 0.75: 0.47}
    # The mean does not decrease, but the voice loses too much.
    assert choose.choose_factor(first, second, {})[0] == 0.25


def test_comparisons_have_bootstrap_intervals() -> None:
    before = {OWN: [{"onset_f1": 0.5}, {"onset_f1": 0.7}], "piano": [{"onset_f1": 0.9}]}
    after = {OWN: [{"onset_f1": 0.6}, {"onset_f1": 0.9}], "piano": [{"onset_f1": 0.8}]}
    own, piano, pooled = choose.comparison(before, after)
    assert own["difference"] == pytest.approx(0.15)
    low, high = own["interval"]
    assert 0.1 - 1e-9 <= low < high <= 0.2 + 1e-9
    assert piano["interval"] is None
    assert pooled["group"] == "all families"
    assert "+0.150" in choose.table([own, piano])


def test_the_example_notebook_runs(
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
