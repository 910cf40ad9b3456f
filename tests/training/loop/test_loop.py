"""Tests of the training loop with a linear regression."""

import errno
import io
import signal
from collections.abc import Generator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from training.loop import loop
from training.loop.loop import LoopConfig, Trainer, deferred_signals

Batches = Generator[Tensor, None, None]
QUICK = LoopConfig(steps=400, learning_rate=0.1, average=0.5, log_steps=100, bfloat16=False)


class LinearTask:
    """Task of learning y = 3x - 1."""

    score = "negative_error"
    statistics = nn.Module()

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.network: nn.Module = nn.Linear(1, 1)

    def windows(self, steps: int) -> int:
        return 16 * steps

    def batches(self, seed: int, step: int) -> Batches:
        generator = torch.Generator().manual_seed(seed + step)
        while True:
            yield torch.randn(16, 1, generator=generator)

    def loss(self, batch: Any) -> tuple[Tensor, Mapping[str, Tensor]]:
        batch = batch.to(next(self.network.parameters()).device)
        error = (self.network(batch) - (3 * batch - 1)).square().mean()
        return error, {"error": error.detach()}

    def validate(self, network: nn.Module) -> dict[str, float]:
        x = torch.linspace(-1, 1, 9, device=next(network.parameters()).device)[:, None]
        with torch.inference_mode():
            return {"negative_error": -float((network(x) - (3 * x - 1)).square().mean())}

    def card(self) -> dict[str, Any]:
        return {"config": {}}


@pytest.mark.parametrize(
    ("diverges", "message", "saved_step"), [(True, "step 3", 2), (False, "no more data", 3)]
)
def test_a_failed_run_resumes_from_the_last_good_step(
    tmp_path: Path, diverges: bool, message: str, saved_step: int
) -> None:
    class FailingTask(LinearTask):
        validations = 0

        def batches(self, seed: int, step: int) -> Batches:
            yield from torch.randn(3, 16, 1)
            if diverges:
                yield torch.full((16, 1), float("nan"))
            raise RuntimeError("no more data")

        def validate(self, network: nn.Module) -> dict[str, float]:
            self.validations += 1
            return super().validate(network)

    error, task = FloatingPointError if diverges else RuntimeError, FailingTask()
    with pytest.raises(error, match=message):
        Trainer(task, replace(QUICK, validate_steps=2), tmp_path).run()
    assert task.validations == 1  # at step 2, but not after the failure
    resumed = resume(tmp_path)
    assert resumed.step == saved_step
    resumed.run()


@pytest.mark.parametrize("options", [{}, {"gradient_clip": 0.0}, {"optimizer": "released"}])
def test_a_gradient_that_is_not_finite_changes_no_weights(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    class SteepTask(LinearTask):
        def loss(self, batch: Any) -> tuple[Tensor, Mapping[str, Tensor]]:
            loss, parts = super().loss(batch)
            weight = next(self.network.parameters())
            return loss + (weight - weight.detach()).sqrt().sum(), parts

    task = SteepTask()
    before = [parameter.detach().clone() for parameter in task.network.parameters()]
    with pytest.raises(FloatingPointError, match="gradient is inf at step 0"):
        Trainer(task, replace(QUICK, **options), tmp_path).run()
    torch.testing.assert_close([p.detach() for p in task.network.parameters()], before)
    assert not list(tmp_path.glob("*.safetensors"))


def resume(folder: Path) -> Trainer:
    trainer = Trainer(LinearTask(), QUICK, folder)
    trainer.resume()
    return trainer


def test_the_second_signal_interrupts_immediately() -> None:
    previous = signal.getsignal(signal.SIGINT)
    with deferred_signals() as received:
        signal.raise_signal(signal.SIGTERM)
        assert received == [signal.SIGTERM]
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is previous


def test_an_interrupted_run_is_saved_without_validation(tmp_path: Path) -> None:
    class Interrupted(LinearTask):
        def loss(self, batch: Any) -> tuple[Tensor, Mapping[str, Tensor]]:
            signal.raise_signal(signal.SIGTERM)
            return super().loss(batch)

        def validate(self, network: nn.Module) -> dict[str, float]:
            raise AssertionError("an interrupted run must not validate")

    assert Trainer(Interrupted(), QUICK, tmp_path).run() == {}
    assert (tmp_path / "last.safetensors").exists()
    resumed = resume(tmp_path)
    assert resumed.step == 1
    assert resumed.run().keys() == {"negative_error"}


def test_a_run_saves_before_it_validates(tmp_path: Path) -> None:
    class Killed(LinearTask):
        def validate(self, network: nn.Module) -> dict[str, float]:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Trainer(Killed(), replace(QUICK, max_minutes=1e-9), tmp_path).run()
    assert resume(tmp_path).step == 1
    assert (tmp_path / "last.safetensors").exists()


def test_a_run_is_also_saved_between_validations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(LinearTask):
        steps = 0

        def loss(self, batch: Any) -> tuple[Tensor, Mapping[str, Tensor]]:
            self.steps += 1
            if self.steps == 3:
                raise KeyboardInterrupt
            return super().loss(batch)

    monkeypatch.setattr(loop, "_SAVE_S", 0.0)
    with pytest.raises(KeyboardInterrupt):
        Trainer(Killed(), QUICK, tmp_path).run()
    assert resume(tmp_path).step == 2


def test_data_errors_after_a_signal_are_ignored(tmp_path: Path) -> None:
    class Killed(LinearTask):
        def loss(self, batch: Any) -> tuple[Tensor, Mapping[str, Tensor]]:
            signal.raise_signal(signal.SIGTERM)
            raise RuntimeError("a worker that loads data was killed")

    assert Trainer(Killed(), QUICK, tmp_path).run() == {}
    assert (tmp_path / "last.safetensors").exists()


def test_a_full_disk_is_an_os_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class FullDisk(io.BytesIO):
        def write(self, data: Any) -> int:
            if self.tell() + len(data) > 1000:
                raise OSError(errno.ENOSPC, "No space left on device")
            return super().write(data)

    def replace(path: Path, write: Any) -> None:
        if path.name == "state.pt":
            write(FullDisk())

    monkeypatch.setattr("model.commands.replace_file", replace)
    monkeypatch.setattr(loop, "replace_file", replace, raising=False)
    with pytest.raises(OSError, match="No space left"):
        Trainer(LinearTask(), QUICK, tmp_path).save(validate=False)
