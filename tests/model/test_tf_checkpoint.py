"""Tests of the reader of TensorFlow checkpoints, on files that TensorFlow wrote."""

import shutil
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from model.storage import WeightsError
from model.tf_checkpoint import read_checkpoint

# tensorflow.ckpt next to this file was written by TensorFlow 2.21 (SaveV2, MergeV2Checkpoints), in
# two shards.
VARIABLES: dict[str, NDArray] = {
    "Variable": np.array(7, np.int32),
    "a/CvB": np.linspace(0, 1, 5, dtype=np.float32),
    "a/CvK": np.arange(12, dtype=np.float32).reshape(3, 4),
    "a/CvK/RAdam": np.zeros((3, 4), np.float64),
    "b/empty": np.zeros((0, 3), np.float32),
    "b/half": np.ones((2, 1, 2), np.float16),
    "b/long": np.array([-1, 2**40], np.int64),
}


@pytest.fixture
def prefix(tmp_path: Path) -> Path:
    for path in Path(__file__).parent.glob("tensorflow.ckpt.*"):
        shutil.copy(path, tmp_path)
    return tmp_path / "tensorflow.ckpt"


def test_truncation_of_any_file_is_detected(prefix: Path) -> None:
    for path in sorted(prefix.parent.iterdir()):
        content = path.read_bytes()
        for length in range(len(content)):
            path.write_bytes(content[:length])
            with pytest.raises(WeightsError, match=path.name):
                read_checkpoint(prefix)
        path.write_bytes(content)
    variables = read_checkpoint(prefix)
    assert variables.keys() == VARIABLES.keys()
    for name, values in VARIABLES.items():
        np.testing.assert_array_equal(variables[name], values, strict=True)


def test_corruption_of_any_byte_of_the_index_causes_no_other_error(prefix: Path) -> None:
    index = Path(f"{prefix}.index")
    content = index.read_bytes()
    for position in range(len(content)):
        for value in (0, 0x1A, 0xFF):
            index.write_bytes(content[:position] + bytes([value]) + content[position + 1 :])
            with suppress(WeightsError):  # names and values have no checksums
                read_checkpoint(prefix)


def test_the_error_names_a_missing_shard(prefix: Path) -> None:
    Path(f"{prefix}.data-00001-of-00002").unlink()
    with pytest.raises(WeightsError, match="data-00001-of-00002: No such file"):
        read_checkpoint(prefix)
