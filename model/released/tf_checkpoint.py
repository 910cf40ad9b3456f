"""Reads TensorFlow V2 checkpoints without TensorFlow.

A checkpoint PREFIX is an index and shards of raw values. ``PREFIX.index`` is a sorted table in
LevelDB's format::

    data blocks | ... | index block | footer: handles of the last two, magic number
    block: entries | restart offsets | their number;   then 1 byte type, 4 bytes masked CRC-32C
    entry: shared key bytes, further key bytes, value bytes (varints) | key's rest | value

whose values are protocol buffers: under the empty key the number of shards and the byte order,
under each variable's name its type, shape, place in ``PREFIX.data-SSSSS-of-NNNNN`` and checksum.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from model.storage import WeightsError

try:
    import google_crc32c
except ImportError:
    raise ImportError("google-crc32c is missing: pip install 'rse-transcribe[training]'") from None

MAGIC = 0xDB4775248B80FB57
FOOTER_BYTES = 48
_MASK_DELTA = 0xA282EAD8  # of the masked form of checksums
TRAILER_BYTES = 5  # type and checksum behind a block
DTYPES = {1: "<f4", 2: "<f8", 3: "<i4", 4: "u1", 5: "<i2", 6: "i1", 9: "<i8", 10: "?", 19: "<f2"}
"""Values of ``DataType`` that numpy supports too."""

Field = tuple[int, int | bytes]


@dataclass(frozen=True)
class Entry:
    """The location of a variable's values."""

    dtype: int
    shape: tuple[int, ...]
    shard: int
    offset: int
    size: int
    """Bytes."""
    crc: int
    """Masked CRC-32C of the values."""


def read_checkpoint(prefix: str | Path) -> dict[str, NDArray]:
    """All variables of a checkpoint by name.

    Verifies every checksum. Raises WeightsError if anything is missing, damaged or stored in an
    unsupported way (compressed, partitioned, strings).
    """
    entries, shards = read_index(prefix)
    return {name: _read_values(prefix, name, entry, shards) for name, entry in entries.items()}


def read_index(prefix: str | Path) -> tuple[dict[str, Entry], int]:
    """The entries of a checkpoint by variable name, and the number of shards."""
    path = Path(f"{prefix}.index")
    try:
        data = path.read_bytes()
    except OSError as error:
        raise WeightsError(f"cannot read {path}: {error.strerror}") from error
    try:
        return _parse_index(data)
    except (IndexError, struct.error, UnicodeDecodeError) as error:
        raise WeightsError(f"{path} is damaged: {error}") from error
    except WeightsError as error:
        raise WeightsError(f"{path}: {error}") from error


def _parse_index(data: bytes) -> tuple[dict[str, Entry], int]:
    if len(data) < FOOTER_BYTES or struct.unpack("<Q", data[-8:])[0] != MAGIC:
        raise WeightsError("not the index of a TensorFlow checkpoint, or truncated")
    footer = data[-FOOTER_BYTES:]
    _, position = _handle(footer, 0)  # of the block of filters, which is empty
    (offset, size), _ = _handle(footer, position)
    shards = None
    entries: dict[str, Entry] = {}
    for _, value in _block_entries(_block(data, offset, size)):
        (offset, size), _ = _handle(value, 0)
        for key, record in _block_entries(_block(data, offset, size)):
            name = key.decode()
            if not name:
                shards = _parse_header(record)
            elif name in entries:
                raise WeightsError(f"{name} comes twice")
            else:
                entries[name] = _parse_entry(name, record)
    if shards is None:
        raise WeightsError("the header is missing")
    return entries, shards


def _read_values(prefix: str | Path, name: str, entry: Entry, shards: int) -> NDArray:
    if entry.dtype not in DTYPES:
        raise WeightsError(f"{name} has data type {entry.dtype}, which holds no numbers")
    dtype = np.dtype(DTYPES[entry.dtype])
    if entry.size != prod(entry.shape) * dtype.itemsize:
        raise WeightsError(f"{name}: {entry.size} bytes do not make the shape {entry.shape}")
    path = Path(f"{prefix}.data-{entry.shard:05d}-of-{shards:05d}")
    try:
        if path.stat().st_size < entry.offset + entry.size:
            raise WeightsError(f"{path} is truncated: {name} ends past its end")
        data = bytearray(entry.size)
        with path.open("rb") as file:
            file.seek(entry.offset)
            file.readinto(data)
    except OSError as error:
        raise WeightsError(f"cannot read {path}: {error.strerror}") from error
    if masked_crc32c(data) != entry.crc:
        raise WeightsError(f"{path} is damaged: the checksum of {name} does not match")
    return np.frombuffer(data, dtype).reshape(entry.shape)


def _block(data: bytes, offset: int, size: int) -> bytes:
    """A block's content, after verifying its checksum."""
    end = offset + size
    if end + TRAILER_BYTES > len(data) - FOOTER_BYTES:
        raise WeightsError("a block lies outside the file")
    (crc,) = struct.unpack_from("<I", data, end + 1)
    if masked_crc32c(data[offset : end + 1]) != crc:
        raise WeightsError("damaged: the checksum of a block does not match")
    if data[end] != 0:
        raise WeightsError(f"blocks of type {data[end]} (compressed) are not supported")
    return data[offset:end]


def _block_entries(block: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Keys and values of a block; each key shares a prefix with the previous one."""
    (restarts,) = struct.unpack_from("<I", block, len(block) - 4)
    end = len(block) - 4 * (restarts + 1)
    if end < 0:
        raise WeightsError("damaged: more restarts than a block can hold")
    position, key = 0, b""
    while position < end:
        shared, position = _varint(block, position)
        rest, position = _varint(block, position)
        size, position = _varint(block, position)
        if shared > len(key) or position + rest + size > end:
            raise WeightsError("damaged: an entry reaches beyond its block")
        key = key[:shared] + block[position : position + rest]
        position += rest
        yield key, block[position : position + size]
        position += size


def _parse_header(record: bytes) -> int:
    """The number of shards (``BundleHeaderProto``)."""
    fields = dict(_fields(record))
    if fields.get(2, 0) != 0:
        raise WeightsError("values in big-endian order are not supported")
    return _number(fields.get(1, 0))


def _parse_entry(name: str, record: bytes) -> Entry:
    """A variable's place (``BundleEntryProto``)."""
    fields = dict(_fields(record))
    if 7 in fields:
        raise WeightsError(f"{name} is stored in slices, which is not supported")
    shape = []
    for number, dimension in _fields(_bytes(fields.get(2, b""))):  # TensorShapeProto
        if number == 3:
            raise WeightsError(f"{name} has no known rank")
        if number == 2:
            shape.append(_number(dict(_fields(_bytes(dimension))).get(1, 0)))
    dtype, shard, offset, size, crc = (_number(fields.get(k, 0)) for k in (1, 3, 4, 5, 6))
    return Entry(dtype, tuple(shape), shard, offset, size, crc)


def _fields(message: bytes) -> Iterator[Field]:
    """Field numbers and values of a protocol buffer."""
    position = 0
    while position < len(message):
        tag, position = _varint(message, position)
        match tag & 7:
            case 0:
                value, position = _varint(message, position)
                yield tag >> 3, value
                continue
            case 1:
                size = 8
            case 2:
                size, position = _varint(message, position)
            case 5:
                size = 4
            case wire:
                raise WeightsError(f"damaged: a field of wire type {wire}")
        content = message[position : position + size]
        if len(content) != size:
            raise WeightsError("damaged: a field reaches beyond its record")
        position += size
        yield tag >> 3, content if tag & 7 == 2 else int.from_bytes(content, "little")


def _number(value: int | bytes) -> int:
    if isinstance(value, bytes) or value >> 63:
        raise WeightsError("damaged: a field that should be a natural number is not")
    return value


def _bytes(value: int | bytes) -> bytes:
    if not isinstance(value, bytes):
        raise WeightsError("damaged: a field that should be a record is a number")
    return value


def _handle(data: bytes, position: int) -> tuple[tuple[int, int], int]:
    """Offset and size of a block, and the position after them."""
    offset, position = _varint(data, position)
    size, position = _varint(data, position)
    return (offset, size), position


def _varint(data: bytes, position: int) -> tuple[int, int]:
    """A number stored as seven bits per byte, least significant first, and the position after."""
    value = 0
    for shift in range(0, 70, 7):
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise WeightsError("damaged: a number of more than ten bytes")


def masked_crc32c(data: bytes | bytearray | memoryview) -> int:
    """The CRC-32C of the data in the masked form that tables and checkpoints store."""
    crc: int = google_crc32c.value(bytes(data))
    return ((crc >> 15 | crc << 17) + _MASK_DELTA) & 0xFFFFFFFF
