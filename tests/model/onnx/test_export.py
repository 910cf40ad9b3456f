"""The exported graphs give torch's numbers; a stream of steps gives those of its windows."""

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from numpy.typing import NDArray

from model import export_onnx
from model.config import FRAMES, HOP, WINDOW, ModelConfig, RSEConfig, StridedConfig
from model.onnx import export
from model.storage import load
from model.transcriber import TranscriptionModel

PARITY = 1e-4
WAVEFORM = ModelConfig(
    name="waveform",
    front_end=StridedConfig(),
    rse=RSEConfig(maps=8, blocks=1, norm="sequence", activation="sigmoid_gelu"),
    heads=("frame", "onset"),
)

Model = onnx.ModelProto


def session(model: Model) -> onnxruntime.InferenceSession:
    return onnxruntime.InferenceSession(model.SerializeToString())


@pytest.fixture(scope="module")
def live() -> TranscriptionModel:
    return load("live", dtype=torch.float32)


@pytest.fixture(scope="module")
def windows(live_onnx: Path) -> Model:
    return onnx.load(live_onnx / "live.onnx")


@pytest.fixture(scope="module")
def step(live_onnx: Path) -> Model:
    return onnx.load(live_onnx / "live.step.onnx")


def in_steps(model: Model, audio: NDArray[np.float32]) -> tuple[int, NDArray[np.float32]]:
    """The first frame and the probabilities [heads, n, 128] that steps through the audio give."""
    running, facts = session(model), export.facts(model)
    state = {name: np.zeros((1, *shape), np.float32) for name, shape in facts["state"].items()}
    reported = []
    for new in audio.reshape(-1, 1, HOP * facts["block_frames"]):
        probabilities, *after = running.run(None, {"new": new, **state})
        state = dict(zip(state, after, strict=True))
        reported.append(probabilities[0])
    return facts["first_frame"], np.concatenate(reported, axis=1)


def step_difference(
    transcriber: TranscriptionModel, model: Model, audio: NDArray[np.float32]
) -> float:
    """The largest, from the answers to whole windows whose audio began as a stream's does."""
    first, reported = in_steps(model, audio)
    facts, samples = export.facts(model), transcriber.config.context + WINDOW
    block, ahead = facts["block_frames"], facts["lookahead_hops"]
    stream = np.concatenate([np.zeros(samples, np.float32), audio])
    heads, worst = len(facts["heads"]), 0.0
    for number in range(len(audio) // HOP // block):
        end = samples + HOP * block * (number + 1)
        window = torch.from_numpy(stream[end - samples : end])[None]
        newest = FRAMES - ahead
        wanted = transcriber.predict(window)[0, :heads, newest - block + 1 : newest + 1].numpy()
        worst = max(worst, abs(reported[:, number * block : (number + 1) * block] - wanted).max())
    assert first == 1 - ahead
    return worst


@pytest.mark.parametrize("batch", [1, 3])
def test_windows_of_noise_in_any_batch(
    live: TranscriptionModel, windows: Model, batch: int
) -> None:
    noise = 0.1 * torch.randn(batch, export.facts(windows)["samples"])
    (found,) = session(windows).run(None, {"windows": noise.numpy()})
    np.testing.assert_allclose(found, live.predict(noise)[:, :-1], atol=PARITY, rtol=0)


def test_a_stream_in_steps(live: TranscriptionModel, step: Model) -> None:
    noise = np.random.default_rng(1).normal(0, 0.1, HOP * 4 * 40).astype(np.float32)
    assert step_difference(live, step, noise) < PARITY


def test_another_network_and_block() -> None:
    transcriber = TranscriptionModel(WAVEFORM).eval()
    noise = np.random.default_rng(2).normal(0, 0.1, HOP * 80).astype(np.float32)
    model = export.step_model(transcriber, lookahead_hops=32, block_frames=8)
    assert step_difference(transcriber, model, noise) < PARITY


def test_a_stream_of_silence_and_sound_does_not_reach_its_neighbour(step: Model) -> None:
    facts = export.facts(step)
    noise = np.random.default_rng(3).normal(0, 0.1, (2, HOP * facts["block_frames"]))
    state = {name: np.zeros((2, *shape), "f") for name, shape in facts["state"].items()}
    both = session(step).run(None, {"new": noise.astype("f"), **state})
    half = {name: value[:1] for name, value in state.items()}
    alone = session(step).run(None, {"new": noise[:1].astype("f"), **half})
    for together, single in zip(both, alone, strict=True):
        np.testing.assert_allclose(together[:1], single, atol=PARITY)


def test_metadata_says_what_a_host_needs(
    live: TranscriptionModel, windows: Model, step: Model
) -> None:
    for facts in (export.facts(windows), export.facts(step)):
        assert facts["sample_rate"] == live.config.sample_rate
        assert tuple(facts["heads"]) == live.config.heads
        assert facts["tracker"] == live.card["tracker"]
    inputs = {entry.name for entry in step.graph.input}
    assert inputs == {"new", *export.facts(step)["state"]}


def test_quantised_is_smaller_and_close(windows: Model) -> None:
    small = export.quantised(windows)
    assert export.facts(small) == export.facts(windows)
    assert small.ByteSize() < 0.9 * windows.ByteSize()
    assert 0 < export.largest_change(windows, small) < 0.1


def test_unknown_weights_are_one_clear_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert export_onnx.main(["nothing", str(tmp_path / "x.onnx")]) == 1
    said = capsys.readouterr().err
    assert said.startswith("error: no weights 'nothing'")
    assert said.count("\n") == 1
