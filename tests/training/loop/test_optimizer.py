"""Tests of optimisers and symbol losses, also against recorded training by the released code."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from model.config import PITCHES, ModelConfig, RSEConfig, StridedConfig
from model.import_tf import from_released, infer_config
from model.symbols import SymbolConfig, SymbolNetwork
from model.transcriber import StridedNetwork, TranscriptionModel
from tests.paths import SHARED
from training.loop.optimizer import ADAM_SIZE, Muon, ReleasedRAdam, parameter_groups, schedule
from training.loop.symbol_losses import (
    algorithmic_accuracy,
    algorithmic_loss,
    lambada_accuracy,
    lambada_loss,
    pointer_sum_loss,
)
from training.musicnet.objective import FrameTerms, frame_loss

ORACLES = SHARED / "reference" / "oracles"
TRACES = sorted(ORACLES.glob("train_*.npz"))


class Trace:
    """Recorded training run: initial network, batches and results.

    The tests repeat it in double precision. RAdam divides gradients that are zero except for
    rounding by epsilon, and in single precision the rounding depends on the processor.
    """

    def __init__(self, path: Path) -> None:
        with np.load(path) as file:
            self.meta: dict[str, Any] = json.loads(str(file["meta"]))
            arrays = {k: torch.as_tensor(file[k]) for k in file.files if k != "meta"}
        self.arrays = {k: a.double() if a.is_floating_point() else a for k, a in arrays.items()}
        self.initial = {
            k.removeprefix("init/"): v for k, v in self.arrays.items() if k.startswith("init/")
        }
        shapes = {name: tuple(value.shape) for name, value in self.initial.items()}
        config = infer_config(shapes, "trace")
        assert config.rse.blocks == self.meta["n_blocks"]
        config = replace(config, rse=replace(config.rse, dropout=0.0))
        self.network: nn.Module
        if isinstance(config, ModelConfig):
            assert isinstance(config.front_end, StridedConfig)
            front_end = replace(config.front_end, input_noise=0.0)
            self.network = TranscriptionModel(replace(config, front_end=front_end))
        else:
            self.network = SymbolNetwork(config)
        self.network.double()
        self.network.load_state_dict(self.state_dict("init"))
        self.trained = {name for name, p in self.network.named_parameters() if p.requires_grad}
        self.network.train()

    def state_dict(self, prefix: str, suffix: str = "") -> dict[str, Tensor]:
        """Return the recorded variables under a prefix as a state dict of the network. Frozen
        variables have their initial value, because no other was recorded."""
        variables = self.initial | {
            k.removeprefix(f"{prefix}/").removesuffix(suffix): v
            for k, v in self.arrays.items()
            if k.startswith(f"{prefix}/") and k.endswith(suffix)
        }
        return from_released(self.network, variables)

    def loss(self, step: int) -> tuple[Tensor, Tensor]:
        """Return loss and accuracy over the bins of a step."""
        results = [
            self.bin_loss(self.arrays[f"batch/{step}/{n}/x"], self.arrays[f"batch/{step}/{n}/y"])
            for n in self.meta["bins"]
        ]
        losses, accuracies = zip(*results, strict=True)
        return torch.stack(losses).mean(), torch.stack(accuracies).mean()

    def bin_loss(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
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
                middle = logits.shape[1] // 2
                calibrated = transcriber.calibrate(logits.detach()[:, None])[:, 0, middle]
                terms = FrameTerms(smoothing=smoothing)
                total, _ = frame_loss(logits, raw, calibrated, frame, terms)
                correct = (logits[:, middle] > 0) == (frame[:, middle] > 0.5)
                return total, correct.float().mean()
            case "lambada":
                logits = self.network(x)
                return lambada_loss(logits, y, smoothing), lambada_accuracy(logits, y)
            case _:
                logits = self.network(x)
                return algorithmic_loss(logits, y, smoothing), algorithmic_accuracy(logits, y)


def frame_labels(y: Tensor) -> Tensor:
    """Map recorded label rows, (batch, samples), to 0 and 1, (batch, frames, PITCHES)."""
    frames = y.shape[1] // PITCHES - 1
    return (y[:, : frames * PITCHES] - 1).unflatten(1, (frames, PITCHES)).double()


@pytest.mark.skipif(not TRACES, reason=f"no training traces at {ORACLES}")
@pytest.mark.parametrize("path", TRACES, ids=lambda p: p.stem)
def test_training_equals_the_released_code(path: Path) -> None:
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
        gradients = trace.state_dict(f"grad/{step}")
        for name in trace.trained:
            gradient = trace.network.get_parameter(name).grad
            torch.testing.assert_close(gradient, gradients[name], atol=1e-4, rtol=1e-3)
        optimizer.step()
        if step in meta["snapshots"]:
            expected = trace.state_dict(f"after{step}")
            for name, value in trace.network.state_dict().items():
                torch.testing.assert_close(value, expected[name], atol=1e-4, rtol=0)
    momenta, squares = trace.state_dict("slot", "/RAdam"), trace.state_dict("slot", "/RAdam_1")
    for name in trace.trained:
        state = optimizer.state[trace.network.get_parameter(name)]
        # The recording has single precision. Gradients that are zero except for rounding, divided
        # by epsilon, differ by up to 2e-3.
        torch.testing.assert_close(state["m"], momenta[name], atol=2e-3, rtol=1e-2)
        torch.testing.assert_close(state["v"], squares[name], atol=1e-7, rtol=1e-3)


@pytest.mark.parametrize("shape", [(8, 32), (32, 8), (8, 8)])
def test_muon_steps_do_not_depend_on_the_gradient_scale(shape: tuple[int, int]) -> None:
    torch.manual_seed(2)
    matrix = nn.Parameter(torch.zeros(shape))
    group = {"params": [matrix], "orthogonal": True, "weight_decay": 0.0}
    optimizer = Muon([group], lr=0.1, decoupled_weight_decay=True)
    gradient = torch.randn(shape)
    for scale in (1e-3, 1e3):
        with torch.no_grad():
            matrix.zero_()
        optimizer.state.clear()
        matrix.grad = scale * gradient
        optimizer.step()
        assert matrix.detach().square().mean().sqrt() == pytest.approx(0.1 * ADAM_SIZE, rel=0.3)
        assert (matrix * gradient).sum() < 0
        values = torch.linalg.svdvals(matrix)
        assert values.max() < 3.5 * values.min()  # nearly orthogonal


def test_only_exchange_matrices_are_orthogonalised() -> None:
    network = SymbolNetwork(SymbolConfig(5, 3, RSEConfig(maps=4, blocks=1)))
    names = {id(p): name for name, p in network.named_parameters()}
    groups = parameter_groups(network, 0.01, "muon")
    exchange, other, rest = ({names[id(p)] for p in group["params"]} for group in groups)
    assert len(exchange) == 6
    assert all(name.startswith("rse.") for name in exchange)
    assert other == {"embedding.weight", "output.weight"}
    assert exchange | other | rest == set(names.values())


def test_the_pointer_loss_sums_over_all_answer_positions() -> None:
    targets = torch.tensor([[0, 1, 2, 1, 2, 1]])  # 0: padding, which must not count
    scores = torch.tensor([[9.0, 0.0, 1.0, 0.0, 2.0, 1.0]])
    logits = torch.stack([torch.zeros_like(scores), torch.ones_like(scores), scores], dim=-1)
    probabilities = scores[0, 1:].softmax(0)
    expected = -(probabilities[1] + probabilities[3]).log()
    torch.testing.assert_close(pointer_sum_loss(logits, targets), expected)
