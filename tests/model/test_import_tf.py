"""Tests of the import of the released code's checkpoints."""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

from model import import_tf, predict
from model.config import RELEASED, RELEASED_RSE, WINDOW, ModelConfig, StridedConfig
from model.import_tf import build, import_checkpoint, main, released_names
from model.storage import WeightsError, load
from model.symbols import SymbolConfig, SymbolNetwork, load_symbol_network
from model.transcriber import TranscriptionModel
from tests.commands import run
from tests.model.fast.test_network import randomise
from tests.paths import SHARED

ORACLES = SHARED / "reference" / "oracles"
RSE = replace(RELEASED_RSE, maps=4)


def released_variables(network: nn.Module) -> dict[str, NDArray]:
    """Return a network's parameters with the names and layouts of the released code."""
    variables, state = {}, network.state_dict()
    for name, released_name in released_names(network).items():
        array = state[name].numpy()
        if released_name.endswith("CvK"):
            array = np.ascontiguousarray(array.T)
        elif released_name.endswith("norm_bias/offset"):
            array = array[None, None]
        variables[released_name] = array
    return variables


def training_variables(variables: Mapping[str, NDArray]) -> dict[str, NDArray]:
    """Add the variables of the released code's training: slots, counters and the loss scale."""
    slots = {
        name + slot: np.zeros_like(value)
        for name, value in variables.items()
        for slot in ("/RAdam", "/RAdam_1")
    }
    others = "Variable_1 Variable_2 beta1_power beta2_power current_loss_scale good_steps step"
    scalars = {name: np.array(124, np.float32) for name in others.split()}
    return {**variables, **slots, **scalars, "Variable": np.array(123, np.int32)}


def transcriber(convolutions: int = 2, fourier: bool = False) -> TranscriptionModel:
    front_end = StridedConfig(convolutions=convolutions, fourier=fourier)
    network = randomise(TranscriptionModel(replace(RELEASED, front_end=front_end, rse=RSE)))
    assert isinstance(network, TranscriptionModel)
    return network


@pytest.fixture
def import_variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Function that imports variables as if from a checkpoint."""

    def import_these(variables: dict[str, NDArray], *options: str) -> Path:
        monkeypatch.setattr(import_tf, "read_checkpoint", lambda _: variables)
        out = tmp_path / "deep" / "out.safetensors"
        assert run(main, "varWeights.ckpt.index", out, *options).status == 0
        return out

    return import_these


@pytest.mark.parametrize(("convolutions", "fourier"), [(0, False), (2, True), (3, False)])
def test_imported_transcription_networks_predict_the_same(
    import_variables: Callable[..., Path], convolutions: int, fourier: bool
) -> None:
    network = transcriber(convolutions, fourier)
    variables = training_variables(released_variables(network))
    out = import_variables(variables, *["--fourier"] * fourier)
    loaded = load(out, dtype=torch.float32)
    front_end = StridedConfig(convolutions=convolutions, fourier=fourier)
    assert loaded.config == replace(RELEASED, name="out", front_end=front_end, rse=RSE)
    assert loaded.config.sample_rate == 11_000
    assert not loaded.training
    assert loaded.card["task"] == "musicnet"
    assert loaded.card["source"]["training_steps"] == 123
    state = loaded.state_dict()
    assert all(torch.equal(v, state[k]) for k, v in network.state_dict().items())
    if convolutions:  # Without convolutions the sequence has 8192 elements, which is slow.
        windows = 0.1 * torch.randn(2, WINDOW)
        torch.testing.assert_close(loaded.predict(windows), network.predict(windows))


@pytest.mark.parametrize(
    ("classes", "word_features", "task"), [(3, 6, "lambada"), (4, 0, "algorithmic")]
)
def test_imported_symbol_networks_predict_the_same(
    import_variables: Callable[..., Path], classes: int, word_features: int, task: str
) -> None:
    config = SymbolConfig(13, classes, replace(RSE, blocks=1), word_features)
    network = randomise(SymbolNetwork(config))
    out = import_variables(released_variables(network))
    loaded = load_symbol_network(out)
    assert loaded.config == config
    assert json.loads(out.with_suffix(".json").read_text())["task"] == task
    symbols = torch.randint(13, (2, 16))
    torch.testing.assert_close(loaded(symbols), network(symbols))


UNIT = "var_lengths/steps_recursive/1_forward"


def without(name: str) -> Callable[[dict[str, NDArray]], None]:
    def change(variables: dict[str, NDArray]) -> None:
        for end in ("", "/RAdam", "/RAdam_1"):
            del variables[name + end]

    return change


def with_value(name: str, value: NDArray) -> Callable[[dict[str, NDArray]], None]:
    return lambda variables: variables.update({name: value})


FLOATS = np.zeros(3, np.float32)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (without("var_lengths/output/CvK"), "var_lengths/output/CvK is missing"),
        (without(f"{UNIT}/residual"), f"unexpected variable {UNIT}/cand1/c/CvK"),
        (with_value("var_lengths/output/CvB", FLOATS), r"CvB has shape \(3,\), expected \(128,\)"),
        (with_value("var_lengths/output/CvK", FLOATS), "expected a matrix"),
        (
            lambda variables: variables.update(
                {f"var_lengths/pool1/conv{i}/CvK": np.zeros((4, 1, 2), "f4") for i in range(1, 9)}
            ),
            "convolutions must be less than 8, not 8",
        ),
        (
            with_value("var_lengths/output/CvB", np.full(128, np.nan, np.float32)),
            "CvB has values that are not finite",
        ),
        (
            with_value(f"{UNIT.replace('1_forward', 'last')}/cand1/c/CvK", np.zeros((8, 9), "f4")),
            "9 hidden maps",
        ),
    ],
)
def test_errors_name_variables_that_do_not_fit(
    monkeypatch: pytest.MonkeyPatch, change: Callable[[dict[str, NDArray]], None], message: str
) -> None:
    variables = training_variables(released_variables(transcriber()))
    change(variables)
    monkeypatch.setattr(import_tf, "read_checkpoint", lambda _: variables)
    with pytest.raises(WeightsError, match=message):
        import_checkpoint("x", "x")


@pytest.mark.parametrize(
    ("prefix", "name", "message"),
    [
        ("nowhere.ckpt", "out.safetensors", "nowhere.ckpt.index: No such file"),
        ("tensorflow.ckpt", "out.safetensors", "var_lengths/output/CvK is missing"),
        ("tensorflow.ckpt", "out.pt", "must end in .safetensors"),
    ],
)
def test_failures_preserve_the_existing_file(
    tmp_path: Path, prefix: str, name: str, message: str
) -> None:
    out = tmp_path / name
    out.write_bytes(b"before")
    status, _, error = run(main, Path(__file__).parent / prefix, out)
    assert status == 1
    assert message in error
    assert out.read_bytes() == b"before"


@pytest.mark.parametrize("folder", sorted(ORACLES.glob("ckpt_*")), ids=lambda p: p.name)
def test_checkpoints_by_tensorflow_predict_the_same(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.safetensors"
    assert run(main, folder / "varWeights.ckpt", out).status == 0
    with np.load(ORACLES / f"{folder.name.removeprefix('ckpt_')}.npz") as file:
        if "out/prediction" not in file.files:  # recorded while training
            trained = {k.removeprefix("after12/"): file[k] for k in file.files if "after12" in k}
            imported = released_variables(load(out, dtype=torch.float32))
            assert trained.keys() == imported.keys()
            assert all(np.array_equal(imported[k], v) for k, v in trained.items())
            return
        np.save(tmp_path / "x.npy", file["in/x"])
        expected = file["out/prediction"]
    assert run(predict.main, out, tmp_path / "x.npy", tmp_path / "y.npy").status == 0
    outputs = np.load(tmp_path / "y.npy")
    assert outputs.dtype == np.float32
    np.testing.assert_allclose(outputs, expected, atol=1e-4, rtol=0)


def test_the_published_checkpoint_fits(shared_dir: Path) -> None:
    path = shared_dir / "reference" / "released_checkpoint_index.json"
    if not path.is_file():
        pytest.skip("no index of the published checkpoint at hand")
    shapes = {name: tuple(shape) for name, shape, *_ in json.loads(path.read_text())}
    network = build(shapes, "published", fourier=True)
    assert network.config == replace(
        RELEASED, name="published", front_end=StridedConfig(convolutions=2, fourier=True)
    )
    assert sum(p.numel() for p in network.parameters()) == 3_204_000
    assert isinstance(network.config, ModelConfig)
    shapes["var_lengths/output/CvX"] = (3,)
    with pytest.raises(WeightsError, match="unexpected variable .*CvX"):
        build(shapes, "published", fourier=True)


def test_the_window_of_transcription_networks_can_be_set(
    import_variables: Callable[..., Path],
) -> None:
    out = import_variables(released_variables(transcriber()), "--window", "2048")
    front_end = load(out).config.front_end
    assert isinstance(front_end, StridedConfig)
    assert front_end.window == 2048
    shapes = {
        name: value.shape
        for name, value in released_variables(SymbolNetwork(SymbolConfig(13, 4, RSE))).items()
    }
    with pytest.raises(WeightsError, match="omit --window"):
        build(shapes, "symbols", window=2048)
