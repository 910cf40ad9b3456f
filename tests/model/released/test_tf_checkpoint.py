"""The reader of TensorFlow checkpoints: round trips, and everything that can be wrong."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from model.released.tf_checkpoint import read_checkpoint, read_index
from model.storage import WeightsError
from tests.model.released import tf_writer
from tests.model.released.tf_writer import number, record, write_checkpoint
from tests.paths import SHARED

VARIABLES: dict[str, NDArray] = {
    "Variable": np.array(7, np.int32),
    "a/CvB": np.linspace(0, 1, 5, dtype=np.float32),
    "a/CvK": np.arange(12, dtype=np.float32).reshape(3, 4),
    "a/CvK/RAdam": np.zeros((3, 4), np.float64),
    "b/empty": np.zeros((0, 3), np.float32),
    "b/half": np.ones((2, 1, 2), np.float16),
    "b/long": np.array([-1, 2**40], np.int64),
}
ORACLES = SHARED / "reference" / "oracles"


def equal(found: dict[str, NDArray], expected: dict[str, NDArray]) -> bool:
    return found.keys() == expected.keys() and all(
        found[k].dtype == v.dtype and np.array_equal(found[k], v) for k, v in expected.items()
    )


@pytest.fixture
def prefix(tmp_path: Path) -> Path:
    prefix = tmp_path / "varWeights.ckpt"
    write_checkpoint(prefix, VARIABLES)
    return prefix


@pytest.mark.parametrize("entries_per_block", [1, 2, 100])
@pytest.mark.parametrize("shards", [1, 3])
def test_what_was_written_is_read(tmp_path: Path, entries_per_block: int, shards: int) -> None:
    prefix = tmp_path / "x"
    write_checkpoint(prefix, VARIABLES, entries_per_block, shards)
    assert equal(read_checkpoint(prefix), VARIABLES)


def test_nothing_survives_truncation_unnoticed(prefix: Path) -> None:
    for path in sorted(prefix.parent.iterdir()):
        whole = path.read_bytes()
        for length in {*range(0, len(whole), 5), len(whole) - 1}:
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


def test_missing_files_are_named(prefix: Path) -> None:
    with pytest.raises(WeightsError, match=r"nowhere\.index: No such file"):
        read_checkpoint(prefix.parent / "nowhere")
    Path(f"{prefix}.data-00000-of-00001").unlink()
    with pytest.raises(WeightsError, match="data-00000-of-00001: No such file"):
        read_checkpoint(prefix)


SHAPE = record(2, record(2, number(1, 5)))


@pytest.mark.parametrize(
    ("key", "content", "message"),
    [
        ("", number(1, 1) + number(2, 1), "big-endian"),
        ("a/CvB", number(1, 7) + SHAPE, "holds no numbers"),
        ("a/CvB", number(1, 1) + SHAPE + number(5, 19), "19 bytes do not make"),
        ("a/CvB", number(1, 1) + record(7, b""), "slices"),
        ("a/CvB", number(1, 1) + SHAPE + number(4, 2**60) + number(5, 20), "truncated"),
        ("a/CvB", b"\x0b", "wire type 3"),
        ("a/CvB", b"\x0a\x05x", "beyond its record"),
    ],
)
def test_records_that_it_cannot_follow_are_refused(
    prefix: Path, key: str, content: bytes, message: str
) -> None:
    write_checkpoint(prefix, VARIABLES, replaced={key: content})
    with pytest.raises(WeightsError, match=message):
        read_checkpoint(prefix)


def test_compressed_tables_and_those_without_header_or_with_bad_entries_are_refused(
    prefix: Path,
) -> None:
    write_checkpoint(prefix, VARIABLES, block_type=1)
    with pytest.raises(WeightsError, match="compressed"):
        read_checkpoint(prefix)
    index = Path(f"{prefix}.index")
    index.write_bytes(tf_writer.table({"a": b""}, 4))
    with pytest.raises(WeightsError, match="header is missing"):
        read_index(prefix)
    index.write_bytes(b"GIF89a" * 40)
    with pytest.raises(WeightsError, match="not the index"):
        read_index(prefix)


@pytest.mark.parametrize("folder", sorted(ORACLES.glob("ckpt_*")), ids=lambda p: p.name)
def test_checkpoints_by_tensorflow_are_read(folder: Path) -> None:
    found = read_checkpoint(folder / "varWeights.ckpt")
    with np.load(ORACLES / f"{folder.name.removeprefix('ckpt_')}.npz") as file:
        after, slots = "after12/", "slot/"
        expected = {
            k.removeprefix(after).removeprefix(slots): file[k]
            for k in file.files
            if k.startswith(("var_lengths/", after, slots))
        }
    assert expected
    assert equal({k: v for k, v in found.items() if k in expected}, expected)
    assert all(v.shape == () for k, v in found.items() if k not in expected)
