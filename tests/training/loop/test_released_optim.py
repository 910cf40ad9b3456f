"""The released code's optimiser: its rules by hand, and against recorded training."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from model.config import PITCHES, ModelConfig, RSEConfig, StridedConfig
from model.import_tf import infer_config
from model.released.names import from_released
from model.symbols import SymbolConfig, SymbolNetwork
from model.transcriber import StridedNetwork, TranscriptionModel
from tests.paths import SHARED
from training.loop.optimizer import ReleasedRAdam, parameter_groups, rectification, schedule
from training.loop.symbol_losses import (
    algorithmic_accuracy,
    algorithmic_loss,
    lambada_accuracy,
    lambada_loss,
)
from training.music.losses import released_loss

ORACLES = SHARED / "reference" / "oracles"
TRACES = sorted(ORACLES.glob("train_*.npz"))
traced = pytest.mark.skipif(not TRACES, reason="no training traces at hand")


def parameter(*values: float) -> nn.Parameter:
    return nn.Parameter(torch.tensor(values, dtype=torch.double))


def step_with(optimizer: ReleasedRAdam, target: nn.Parameter, *gradient: float) -> None:
    target.grad = torch.tensor(gradient, dtype=target.dtype)
    optimizer.step()


def test_the_first_gradient_is_clipped_to_a_hundredth_and_then_normalised() -> None:
    theta = parameter(1.0, 1.0)
    optimizer = ReleasedRAdam([theta], lr=0.1, weight_decay=0)
    step_with(optimizer, theta, 30.0, -40.0)
    state = optimizer.state[theta]
    clipped = torch.tensor([0.006, -0.008], dtype=torch.double)
    torch.testing.assert_close(state["v"], 0.001 * clipped.square())
    # The update is the sign of the gradient, nearly: epsilon stands outside the root.
    expected = clipped / (clipped.abs() + 1e-5)
    torch.testing.assert_close(theta.detach(), 1 - 0.1 * expected)


def test_the_sparse_rule_divides_only_once_the_variance_is_tractable() -> None:
    theta = parameter(0.0, 0.0)
    group = {"params": [theta], "sparse": True, "weight_decay": 0.0}
    optimizer = ReleasedRAdam([group], lr=1.0)
    step_with(optimizer, theta, 0.003, 0.0)
    torch.testing.assert_close(theta.detach(), torch.tensor([-0.003, 0.0]).double())
    for _ in range(5):
        before = theta.detach().clone()
        step_with(optimizer, theta, 0.003, 0.0)
    moved = (before - theta.detach())[0].item()
    rectifier = rectification(6, 0.999)
    assert rectifier is not None
    assert moved == pytest.approx(rectifier * 0.003 / (0.003 + 1e-5))
    assert theta[1] == 0


def test_matrices_decay_and_nothing_else() -> None:
    network = SymbolNetwork(SymbolConfig(5, 3, RSEConfig(maps=4, blocks=1, norm="sequence")))
    names = {id(p): name for name, p in network.named_parameters()}
    found = parameter_groups(network, 0.01, "released")
    groups = [{names[id(p)] for p in g["params"]} for g in found]
    matrices, others, sparse = groups
    assert sparse == {"embedding.weight"}
    assert {n for n in names.values() if n.endswith(("z.weight", "w.weight"))} < matrices
    assert matrices - {n for n in names.values() if "rse" in n} == {"output.weight"}
    assert set().union(*groups) == set(names.values())
    assert all(n.endswith((".s", ".bias")) for n in others)


# --- against recorded training ---------------------------------------------------------------


class Trace:
    """One recorded training: the network as it began, its batches, and what came of it.

    In double precision: gradients that are zero except for rounding are divided by epsilon,
    and in single precision their rounding is another on every kind of processor.
    """

    def __init__(self, path: Path) -> None:
        with np.load(path) as file:
            self.meta: dict[str, Any] = json.loads(str(file["meta"]))
            arrays = {k: torch.as_tensor(file[k]) for k in file.files if k != "meta"}
        self.arrays = {k: a.double() if a.is_floating_point() else a for k, a in arrays.items()}
        found = {k.removeprefix("init/"): v for k, v in self.arrays.items() if k[:5] == "init/"}
        shapes = {name: tuple(value.shape) for name, value in found.items()}
        config, self.convolutions = infer_config(shapes, "trace")
        assert config.rse.blocks == self.meta["n_blocks"]
        config = replace(config, rse=replace(config.rse, dropout=0.0))
        self.network: nn.Module
        if isinstance(config, ModelConfig):
            front_end = StridedConfig(self.convolutions, input_noise=0.0)
            self.network = TranscriptionModel(replace(config, front_end=front_end))
        else:
            self.network = SymbolNetwork(config)
        self.network.double()
        self.network.load_state_dict(self.ours("init"))
        frozen = {name for name, p in self.network.named_parameters() if not p.requires_grad}
        self.trained = {name for name, _ in self.network.named_parameters()} - frozen
        self.network.train()

    def ours(self, prefix: str, suffix: str = "") -> dict[str, Tensor]:
        """The recorded variables under a prefix as a state dict of the network.

        Of frozen ones nothing but the first value was recorded, which stands in.
        """
        first = {k.removeprefix("init/"): v for k, v in self.arrays.items() if k[:5] == "init/"}
        found = first | {
            k.removeprefix(f"{prefix}/").removesuffix(suffix): v
            for k, v in self.arrays.items()
            if k.startswith(f"{prefix}/") and k.endswith(suffix)
        }
        return from_released(self.network, found, self.convolutions)

    def loss(self, step: int) -> tuple[Tensor, Tensor]:
        """Loss and accuracy over the bins of a step."""
        results = [
            self.bin(self.arrays[f"batch/{step}/{n}/x"], self.arrays[f"batch/{step}/{n}/y"])
            for n in self.meta["bins"]
        ]
        losses, accuracies = zip(*results, strict=True)
        return torch.stack(losses).mean(), torch.stack(accuracies).mean()

    def bin(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        smoothing = self.meta["label_smoothing"]
        match self.meta["task"]:
            case "musicnet":
                transcriber = self.network
                assert isinstance(transcriber, TranscriptionModel)
                strided = transcriber.network
                assert isinstance(strided, StridedNetwork)
                raw = strided.raw(x.double())
                logits = strided.frames(raw)[:, 0]
                frame = frame_labels(y)
                total, _ = released_loss(
                    logits, raw, transcriber.scale, transcriber.offset, frame, smoothing
                )
                middle = logits.shape[1] // 2
                right = (logits[:, middle] > 0) == (frame[:, middle] > 0.5)
                return total, right.float().mean()
            case "lambada":
                logits = self.network(x)
                return lambada_loss(logits, y, smoothing), lambada_accuracy(logits, y)
            case _:
                logits = self.network(x)
                return algorithmic_loss(logits, y, smoothing), algorithmic_accuracy(logits, y)


def frame_labels(y: Tensor) -> Tensor:
    """(batch, samples) of the recorded label rows -> (batch, frames, PITCHES) of 0 and 1."""
    frames = y.shape[1] // PITCHES - 1
    return (y[:, : frames * PITCHES] - 1).unflatten(1, (frames, PITCHES)).double()


@traced
@pytest.mark.parametrize("path", TRACES, ids=lambda p: p.stem)
def test_training_goes_as_it_went_in_the_released_code(path: Path) -> None:
    trace = Trace(path)
    meta = trace.meta
    optimizer = ReleasedRAdam(
        parameter_groups(trace.network, meta["L2_decay"], "released"),
        lr=meta["lr0"],
        betas=(meta["beta1"], meta["beta2"]),
        eps=meta["epsilon"],
    )
    for step in range(1, meta["K"] + 1):
        for group in optimizer.param_groups:
            group["lr"] = meta["lr0"] * schedule(step / meta["total_steps"], 0)
        optimizer.zero_grad()
        loss, accuracy = trace.loss(step)
        loss.backward()
        assert loss.item() == pytest.approx(trace.arrays["loss"][step - 1].item(), abs=1e-4)
        assert accuracy.item() == pytest.approx(trace.arrays["accuracy"][step - 1].item(), abs=1e-6)
        gradients = trace.ours(f"grad/{step}")
        for name in trace.trained:
            gradient = trace.network.get_parameter(name).grad
            torch.testing.assert_close(gradient, gradients[name], atol=1e-4, rtol=1e-3)
        optimizer.step()
        if step in meta["snapshots"]:
            expected = trace.ours(f"after{step}")
            for name, value in trace.network.state_dict().items():
                torch.testing.assert_close(value, expected[name], atol=1e-4, rtol=0)
    momenta, squares = trace.ours("slot", "/RAdam"), trace.ours("slot", "/RAdam_1")
    for name in trace.trained:
        state = optimizer.state[trace.network.get_parameter(name)]
        # The recorded ones are of single precision: gradients that are zero except
        # for rounding, divided by epsilon, differ by this much.
        torch.testing.assert_close(state["m"], momenta[name], atol=2e-3, rtol=1e-2)
        torch.testing.assert_close(state["v"], squares[name], atol=1e-7, rtol=1e-3)
