"""Tests of the ONNX export: the graph's steps must reproduce torch's predictions, and the example
host must detect notes with it."""

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import soundfile
import torch
from numpy.typing import NDArray

from model.config import FRAMES, HOP, SAMPLE_RATE, WINDOW, ModelConfig
from model.storage import load
from model.transcriber import TranscriptionModel
from tests.commands import run
from tests.fakes import tone_hz
from tests.networks import FILTERBANK, STRIDED
from tests.paths import REPOSITORY

MAX_DIFFERENCE = 1e-4

Step = Callable[[dict[str, NDArray[np.float32]]], Sequence[NDArray[np.float32]]]


@pytest.fixture(scope="module")
def export_onnx() -> ModuleType:
    """The module under test. Only processes that run these tests pay for its slow imports."""
    from model import export_onnx

    return export_onnx


@pytest.fixture(scope="module")
def live_onnx(export_onnx: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Exported graph of `live`."""
    path = tmp_path_factory.mktemp("onnx") / "live.onnx"
    assert run(export_onnx.main, "live", path).status == 0
    return path


@pytest.fixture(scope="module")
def live(live_onnx: Path) -> tuple[Step, dict[str, Any]]:
    """Step function of the exported graph of `live`, and the graph's metadata."""
    import onnxruntime

    session = onnxruntime.InferenceSession(live_onnx)
    metadata = json.loads(Path(f"{live_onnx}.json").read_text())
    values = session.get_modelmeta().custom_metadata_map
    assert {name: json.loads(value) for name, value in values.items()} == metadata
    return lambda inputs: session.run(None, inputs), metadata


def step_difference(
    transcriber: TranscriptionModel, step: Step, metadata: dict[str, Any], seed: int
) -> float:
    """Return the maximum difference between a stream's first steps and whole windows."""
    block, lookahead = metadata["block_frames"], metadata["lookahead_hops"]
    assert metadata["first_frame"] == 1 - lookahead
    audio = np.random.default_rng(seed).normal(0, 0.1, HOP * 80).astype(np.float32)
    state = {name: np.zeros((1, *shape), np.float32) for name, shape in metadata["state"].items()}
    stream = np.zeros(transcriber.config.context + WINDOW, np.float32)
    newest, max_difference = FRAMES - lookahead, 0.0
    for new in audio.reshape(-1, 1, HOP * block):
        predictions, *next_state = step({"new": new, **state})
        state = dict(zip(state, next_state, strict=True))
        stream = np.concatenate([stream[HOP * block :], new[0]])
        expected = transcriber.predict(torch.from_numpy(stream)[None])[:, : predictions.shape[1]]
        difference = predictions - expected[:, :, newest - block + 1 : newest + 1].numpy()
        max_difference = max(max_difference, abs(difference).max())
    return max_difference


def test_steps_equal_whole_windows(live: tuple[Step, dict[str, Any]]) -> None:
    assert step_difference(load("live", dtype=torch.float32), *live, seed=1) < MAX_DIFFERENCE


@torch.inference_mode()
def test_steps_of_other_networks_and_block_sizes(export_onnx: ModuleType) -> None:
    transcriber = TranscriptionModel(FILTERBANK).eval()
    graph = export_onnx.StepGraph(transcriber, lookahead_hops=32, block_frames=8)

    def step(inputs: dict[str, NDArray[np.float32]]) -> list[NDArray[np.float32]]:
        return [x.numpy() for x in graph(*map(torch.from_numpy, inputs.values()))]

    assert step_difference(transcriber, step, graph.about, seed=2) < MAX_DIFFERENCE


@pytest.mark.parametrize(
    ("config", "lookahead", "message"),
    [
        (STRIDED, 9, "filterbank"),
        (FILTERBANK, 64, "do not fit"),
        (FILTERBANK, FILTERBANK.min_lookahead_hops - 1, "at least"),
    ],
)
def test_unsupported_networks_and_lookaheads_are_rejected(
    export_onnx: ModuleType, config: ModelConfig, lookahead: int, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        export_onnx.StepGraph(TranscriptionModel(config), lookahead_hops=lookahead, block_frames=4)


def test_streams_of_a_batch_are_independent(live: tuple[Step, dict[str, Any]]) -> None:
    step, metadata = live
    noise = np.random.default_rng(3).normal(0, 0.1, (2, HOP * metadata["block_frames"]))
    state = {name: np.zeros((2, *shape), "f") for name, shape in metadata["state"].items()}
    batched = step({"new": noise.astype("f"), **state})
    first_state = {name: value[:1] for name, value in state.items()}
    separate = step({"new": noise[:1].astype("f"), **first_state})
    for both, first in zip(batched, separate, strict=True):
        np.testing.assert_allclose(both[:1], first, atol=MAX_DIFFERENCE)


def test_unknown_weights_cause_a_one_line_error(export_onnx: ModuleType, tmp_path: Path) -> None:
    status, _, error = run(export_onnx.main, "nothing", tmp_path / "x.onnx")
    assert status == 1
    assert error.startswith("error: no weights 'nothing'")
    assert error.count("\n") == 1


TUNE = [(60, 0.5), (67, 1.0), (55, 1.5)]  # (pitch, onset_s)
RUN_WITHOUT_SERVICE_LIBRARIES = """
import runpy, sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("torch", "model", "service", "scipy", "soundfile"):
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Blocker())
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def test_the_onnx_host_needs_numpy_and_onnxruntime_only(live_onnx: Path, tmp_path: Path) -> None:
    time_s = np.arange(5 * SAMPLE_RATE // 2) / SAMPLE_RATE
    samples = np.zeros_like(time_s)
    for pitch, onset_s in TUNE:  # decaying partials, similar to struck strings
        age_s = np.maximum(0, time_s - onset_s)
        for number in range(1, 7):
            partial = np.sin(2 * np.pi * number * tone_hz(pitch) * age_s) / number
            samples += 0.2 * np.exp(-3 * (1 + number / 2) * age_s) * partial
    tune = tmp_path / "tune.wav"
    soundfile.write(tune, samples, SAMPLE_RATE, subtype="PCM_16")
    host: list[str | Path] = [sys.executable, "-c", RUN_WITHOUT_SERVICE_LIBRARIES]
    host += [REPOSITORY / "clients" / "examples" / "onnx_host.py", live_onnx, tune]
    result = subprocess.run(host, capture_output=True, text=True, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    rows = [line.split() for line in result.stdout.splitlines()]
    notes = [(int(pitch), float(onset)) for onset, _, pitch in rows]
    for pitch, onset_s in TUNE:
        assert any(p == pitch and abs(t - onset_s) < 0.05 for p, t in notes), (pitch, notes)
    assert len(notes) < 3 * len(TUNE)
