"""The reader of TensorFlow checkpoints: what TensorFlow wrote, and everything that can be wrong."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from model.released.tf_checkpoint import read_checkpoint
from model.storage import WeightsError

# tensorflow.ckpt beside this file: by TensorFlow 2.21 (SaveV2, MergeV2Checkpoints), in two shards.
VARIABLES: dict[str, NDArray] = {
    "Variable": np.array(7, np.int32),
    "a/CvB": np.linspace(0, 1, 5, dtype=np.float32),
    "a/CvK": np.arange(12, dtype=np.float32).reshape(3, 4),
    "a/CvK/RAdam": np.zeros((3, 4), np.float64),
    "b/empty": np.zeros((0, 3), np.float32),
    "b/half": np.ones((2, 1, 2), np.float16),
    "b/long": np.array([-1, 2**40], np.int64),
}


def equal(found: dict[str, NDArray], expected: dict[str, NDArray]) -> bool:
    return found.keys() == expected.keys() and all(
        found[k].dtype == v.dtype and np.array_equal(found[k], v) for k, v in expected.items()
    )


@pytest.fixture
def prefix(tmp_path: Path) -> Path:
    for path in Path(__file__).parent.glob("tensorflow.ckpt.*"):
        shutil.copy(path, tmp_path)
    return tmp_path / "tensorflow.ckpt"


def test_nothing_survives_truncation_unnoticed(prefix: Path) -> None:
    for path in sorted(prefix.parent.iterdir()):
        whole = path.read_bytes()
        for length in range(len(whole)):
            path.write_bytes(whole[:length])
            with pytest.raises(WeightsError, match=path.name):
                read_checkpoint(prefix)
        path.write_bytes(whole)
    assert equal(read_checkpoint(prefix), VARIABLES)


@given(data=st.data())
@settings(
    max_examples=100,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_damage_is_noticed_or_harmless(prefix: Path, data: st.DataObject) -> None:
    path = data.draw(st.sampled_from(sorted(prefix.parent.iterdir())))
    whole = path.read_bytes()
    position = data.draw(st.integers(0, len(whole) - 1))
    damaged = bytearray(whole)
    damaged[position] ^= data.draw(st.integers(1, 255))
    path.write_bytes(damaged)
    try:
        found, message = read_checkpoint(prefix), ""
    except WeightsError as error:
        found, message = {}, str(error)
    path.write_bytes(whole)
    # Some bytes of the footer have no use.
    assert path.name in message or equal(found, VARIABLES)


def test_a_missing_shard_is_named(prefix: Path) -> None:
    Path(f"{prefix}.data-00001-of-00002").unlink()
    with pytest.raises(WeightsError, match="data-00001-of-00002: No such file"):
        read_checkpoint(prefix)
