"""Writes small TensorFlow V2 checkpoints, so that tests of the reader need no TensorFlow."""

import struct
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from torch import nn

from model.released.names import released_name
from model.released.tf_checkpoint import DTYPES, FOOTER_BYTES, MAGIC, masked_crc32c

NUMBERS = {np.dtype(name): number for number, name in DTYPES.items()}
RESTART_INTERVAL = 3  # entries after which a key is written whole


def write_checkpoint(
    prefix: Path,
    variables: Mapping[str, NDArray],
    entries_per_block: int = 4,
    shards: int = 1,
    replaced: Mapping[str, bytes] | None = None,
    block_type: int = 0,
) -> None:
    """PREFIX.index and its shards.

    replaced: records written in place of those of some keys, "" being the header; block_type:
    what data blocks say of their compression.
    """
    files = [bytearray() for _ in range(shards)]
    records = {"": number(1, shards) + record(3, number(1, 1))}
    for i, (name, value) in enumerate(sorted(variables.items())):
        content, shard = value.tobytes(), i % shards
        shape = b"".join(record(2, number(1, size)) for size in value.shape)
        records[name] = (
            number(1, NUMBERS[value.dtype])
            + record(2, shape)
            + number(3, shard)
            + number(4, len(files[shard]))
            + number(5, len(content))
            + tag(6, 5)
            + struct.pack("<I", masked_crc32c(content))
        )
        files[shard] += content
    records |= dict(replaced or {})
    for shard, file in enumerate(files):
        Path(f"{prefix}.data-{shard:05d}-of-{shards:05d}").write_bytes(file)
    Path(f"{prefix}.index").write_bytes(table(records, entries_per_block, block_type))


def table(records: Mapping[str, bytes], entries_per_block: int, block_type: int = 0) -> bytes:
    """A sorted table of keys and values in LevelDB's format."""
    out = bytearray()

    def append(entries: list[tuple[bytes, bytes]], kind: int) -> bytes:
        content = block(entries)
        handle = varint(len(out)) + varint(len(content))
        content += bytes([kind])
        out.extend(content + struct.pack("<I", masked_crc32c(content)))
        return handle

    entries = sorted((key.encode(), value) for key, value in records.items())
    index = []
    for start in range(0, len(entries), entries_per_block):
        part = entries[start : start + entries_per_block]
        index.append((part[-1][0], append(part, block_type)))
    handles = append([], 0) + append(index, 0)
    return bytes(out) + handles.ljust(FOOTER_BYTES - 8, b"\0") + struct.pack("<Q", MAGIC)


def block(entries: list[tuple[bytes, bytes]]) -> bytes:
    """Prefix-compressed entries and their restarts."""
    out, restarts, before = bytearray(), [0], b""
    for i, (key, value) in enumerate(entries):
        shared = 0
        if i % RESTART_INTERVAL:
            while shared < min(len(key), len(before)) and key[shared] == before[shared]:
                shared += 1
        elif i:
            restarts.append(len(out))
        rest = key[shared:]
        out += varint(shared) + varint(len(rest)) + varint(len(value)) + rest + value
        before = key
    return bytes(out) + struct.pack(f"<{len(restarts) + 1}I", *restarts, len(restarts))


def varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def tag(field: int, wire: int) -> bytes:
    return varint(field << 3 | wire)


def number(field: int, value: int) -> bytes:
    """A protocol buffer's number."""
    return tag(field, 0) + varint(value)


def record(field: int, content: bytes) -> bytes:
    """A protocol buffer's record within a record."""
    return tag(field, 2) + varint(len(content)) + content


def released_variables(network: nn.Module, convolutions: int = 0) -> dict[str, NDArray]:
    """A network's parameters under the names and in the layouts of the released code."""
    variables = {}
    for name, value in network.state_dict().items():
        theirs = released_name(name, convolutions)
        array = value.numpy()
        if theirs.endswith("CvK"):
            array = np.ascontiguousarray(array.T)
        elif theirs.endswith("norm_bias/offset"):
            array = array[None, None]
        variables[theirs] = array
    return variables


def training_variables(variables: Mapping[str, NDArray]) -> dict[str, NDArray]:
    """With what the released code's training adds: slots, counters, the loss scale."""
    slots = {
        name + slot: np.zeros_like(value)
        for name, value in variables.items()
        for slot in ("/RAdam", "/RAdam_1")
    }
    scalars: dict[str, NDArray] = {
        "Variable": np.array(123, np.int32),
        "Variable_1": np.array(1e-3, np.float64),
        "Variable_2": np.array(1e-3, np.float32),
        "beta1_power": np.array(0.5, np.float32),
        "beta2_power": np.array(0.9, np.float32),
        "current_loss_scale": np.array(2.0**19, np.float32),
        "good_steps": np.array(845, np.int64),
        "step": np.array(124, np.float32),
    }
    return {**variables, **slots, **scalars}
