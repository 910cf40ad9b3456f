"""Reads TensorFlow V2 checkpoints without TensorFlow.

A checkpoint PREFIX consists of an index and shards of raw values. ``PREFIX.index`` is a sorted
table in LevelDB's format::

    file: data blocks | metaindex block | index block | footer
    footer: handle of the metaindex block | handle of the index block | padding | magic number
    block: entries | restart offsets | number of restart offsets
    entry: lengths of shared key, other key and value (varints) | bytes of other key | value

The values of the table are protocol buffers. The value of the empty key has the number of shards
and the byte order. The value of each variable's name has its type, shape and location in
``PREFIX.data-SSSSS-of-NNNNN``. Checksums are not verified.
"""

import struct
from collections.abc import Iterator
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from model.storage import WeightsError

MAGIC = 0xDB4775248B80FB57
FOOTER_BYTES = 48
DTYPES = {1: "<f4", 2: "<f8", 3: "<i4", 4: "u1", 5: "<i2", 6: "i1", 9: "<i8", 10: "?", 19: "<f2"}
"""numpy type of each supported value of the enumeration ``DataType``."""

Message = dict[int, Any]
"""Fields of a protocol buffer by field number: an integer, or the records as a list of bytes."""


def read_checkpoint(prefix: str | Path) -> dict[str, NDArray]:
    """Read all variables of a checkpoint, by name. Raises WeightsError if a file is missing or
    corrupt, or if the type of a variable is not supported."""
    path = Path(f"{prefix}.index")
    try:
        entries = dict(_parse_index(path.read_bytes()))
        shards = entries.pop("")[1]
        return {
            name: _read_values(Path(f"{prefix}.data-{entry[3]:05d}-of-{shards:05d}"), name, entry)
            for name, entry in entries.items()
        }
    except WeightsError:
        raise
    except OSError as error:
        raise WeightsError(f"cannot read {error.filename}: {error.strerror}") from error
    except (AttributeError, LookupError, TypeError, struct.error, ValueError) as error:
        raise WeightsError(f"{path} is corrupt or not a TensorFlow checkpoint: {error}") from error


def _parse_index(data: bytes) -> Iterator[tuple[str, Message]]:
    """Yield the header under an empty name, and the entry of each variable under its name.

    Fields of the header (``BundleHeaderProto``): 1 number of shards. Fields of an entry
    (``BundleEntryProto``): 1 type, 2 shape, 3 shard, 4 offset, 5 size in bytes.
    """
    if struct.unpack("<Q", data[-8:])[0] != MAGIC:
        raise ValueError("the magic number is missing")
    footer = data[-FOOTER_BYTES:]
    _, position = _handle(footer, 0)  # skips the metaindex block's handle
    index, _ = _handle(footer, position)
    for _, handle in _block_entries(data, *index):
        for key, record in _block_entries(data, *_handle(handle, 0)[0]):
            yield key.decode(), {2: [], 3: 0, 4: 0, 5: 0} | _message(record)


def _read_values(path: Path, name: str, entry: Message) -> NDArray:
    if entry[1] not in DTYPES:
        raise WeightsError(f"{name} has data type {entry[1]}, which is not supported")
    dtype = np.dtype(DTYPES[entry[1]])
    shape = [
        _message(size).get(1, 0) for record in entry[2] for size in _message(record).get(2, ())
    ]
    if entry[5] != prod(shape) * dtype.itemsize:
        raise WeightsError(f"{name}: {entry[5]} bytes do not match the shape {shape}")
    if entry[4] + entry[5] > path.stat().st_size:
        raise WeightsError(f"{path} is truncated: {name} is incomplete")
    return np.fromfile(path, dtype, prod(shape), offset=entry[4]).reshape(shape)


def _block_entries(data: bytes, offset: int, size: int) -> Iterator[tuple[bytes, bytes]]:
    """Yield keys and values of a block. Each key shares a prefix with the previous one."""
    end = offset + size
    (restarts,) = struct.unpack_from("<I", data, end - 4)
    end -= 4 * (restarts + 1)
    position, key = offset, b""
    while position < end:
        shared, position = _varint(data, position)
        rest, position = _varint(data, position)
        size, position = _varint(data, position)
        key = key[:shared] + data[position : position + rest]
        position += rest
        yield key, data[position : position + size]
        position += size


def _message(message: bytes) -> Message:
    """Parse a protocol buffer."""
    fields: Message = {}
    position = 0
    while position < len(message):
        tag, position = _varint(message, position)
        number, wire = tag >> 3, tag & 7
        if wire == 0:
            fields[number], position = _varint(message, position)
        elif wire == 2:
            size, position = _varint(message, position)
            fields.setdefault(number, []).append(message[position : position + size])
            position += size
        elif wire == 5:
            (fields[number],) = struct.unpack_from("<I", message, position)
            position += 4
        else:
            raise ValueError(f"unsupported wire type {wire}")
    return fields


def _handle(data: bytes, position: int) -> tuple[tuple[int, int], int]:
    """Return the offset and size of a block, and the position after the handle."""
    offset, position = _varint(data, position)
    size, position = _varint(data, position)
    return (offset, size), position


def _varint(data: bytes, position: int) -> tuple[int, int]:
    """Return a number stored as seven bits per byte, least significant first, and the position
    after it."""
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
