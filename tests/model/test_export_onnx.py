"""A stream in steps of the exported graph gives torch's numbers of its windows."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from model.config import FRAMES, HOP, WINDOW, ModelConfig
from model.storage import load
from model.transcriber import TranscriptionModel
from tests.networks import FILTERBANK, STRIDED

PARITY = 1e-4

Step = Callable[[dict[str, NDArray[np.float32]]], Sequence[NDArray[np.float32]]]


@pytest.fixture(scope="module")
def export_onnx() -> ModuleType:
    """The module. Its libraries are slow to import, and other processes run no test of it."""
    from model import export_onnx

    return export_onnx


@pytest.fixture(scope="module")
def live(live_onnx: Path) -> tuple[Step, dict[str, Any]]:
    """The exported graph of `live` and its metadata."""
    import onnxruntime

    session = onnxruntime.InferenceSession(live_onnx)
    metadata = json.loads(Path(f"{live_onnx}.json").read_text())
    values = session.get_modelmeta().custom_metadata_map
    assert {name: json.loads(value) for name, value in values.items()} == metadata
    return lambda inputs: session.run(None, inputs), metadata


def step_difference(
    transcriber: TranscriptionModel, step: Step, metadata: dict[str, Any], seed: int
) -> float:
    """Return the maximum difference from the predictions for whole windows, at a stream's start."""
    block, ahead = metadata["block_frames"], metadata["lookahead_hops"]
    assert metadata["first_frame"] == 1 - ahead
    audio = np.random.default_rng(seed).normal(0, 0.1, HOP * 80).astype(np.float32)
    state = {name: np.zeros((1, *shape), np.float32) for name, shape in metadata["state"].items()}
    stream = np.zeros(transcriber.config.context + WINDOW, np.float32)
    newest, worst = FRAMES - ahead, 0.0
    for new in audio.reshape(-1, 1, HOP * block):
        found, *after = step({"new": new, **state})
        state = dict(zip(state, after, strict=True))
        stream = np.concatenate([stream[HOP * block :], new[0]])
        wanted = transcriber.predict(torch.from_numpy(stream)[None])[:, : found.shape[1]]
        difference = found - wanted[:, :, newest - block + 1 : newest + 1].numpy()
        worst = max(worst, abs(difference).max())
    return worst


def test_a_stream_in_steps(live: tuple[Step, dict[str, Any]]) -> None:
    assert step_difference(load("live", dtype=torch.float32), *live, seed=1) < PARITY


@torch.inference_mode()
def test_another_network_and_block(export_onnx: ModuleType) -> None:
    transcriber = TranscriptionModel(FILTERBANK).eval()
    graph = export_onnx.StepGraph(transcriber, lookahead_hops=32, block_frames=8)

    def step(inputs: dict[str, NDArray[np.float32]]) -> list[NDArray[np.float32]]:
        return [x.numpy() for x in graph(*map(torch.from_numpy, inputs.values()))]

    assert step_difference(transcriber, step, graph.about, seed=2) < PARITY


@pytest.mark.parametrize(
    ("config", "ahead", "message"), [(STRIDED, 9, "filterbank"), (FILTERBANK, 64, "do not fit")]
)
def test_what_cannot_be_exported(
    export_onnx: ModuleType, config: ModelConfig, ahead: int, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        export_onnx.StepGraph(TranscriptionModel(config), lookahead_hops=ahead, block_frames=4)


def test_streams_of_a_batch_do_not_meet(live: tuple[Step, dict[str, Any]]) -> None:
    step, metadata = live
    noise = np.random.default_rng(3).normal(0, 0.1, (2, HOP * metadata["block_frames"]))
    state = {name: np.zeros((2, *shape), "f") for name, shape in metadata["state"].items()}
    both = step({"new": noise.astype("f"), **state})
    half = {name: value[:1] for name, value in state.items()}
    alone = step({"new": noise[:1].astype("f"), **half})
    for together, single in zip(both, alone, strict=True):
        np.testing.assert_allclose(together[:1], single, atol=PARITY)


def test_unknown_weights_are_one_clear_line(
    export_onnx: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert export_onnx.main(["nothing", str(tmp_path / "x.onnx")]) == 1
    said = capsys.readouterr().err
    assert said.startswith("error: no weights 'nothing'")
    assert said.count("\n") == 1
