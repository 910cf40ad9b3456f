"""Fuzz test of the sandboxed decoder: it returns finite samples or a documented error."""

import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from service.audio.sandbox import SandboxedDecoder
from service.protocol.errors import ProtocolError
from service.protocol.options import MAX_SAMPLE_RATE_HZ
from tests.fuzz.conftest import inputs
from tests.service.apps import sound_file
from tests.service.audio.encode import encode_file

RATE_HZ = 8_000
MAX_DURATION_S = 2.0
MAX_DECODING_S = 120.0  # The sandbox kills a stalled process after 30 s.
TONE = (0.5 * np.sin(np.arange(RATE_HZ // 4) / 5)).astype(np.float32)
FILES = [("WAV", "PCM_16"), ("WAV", "FLOAT"), ("FLAC", "PCM_16"), ("OGG", "VORBIS")]
FILES += [("MP3", "MPEG_LAYER_III"), ("AIFF", "PCM_24"), ("CAF", "PCM_16"), ("NIST", "PCM_16")]
VIDEOS = [("ipod", "aac"), ("adts", "aac"), ("webm", "libopus"), ("mpegts", "aac")]
VIDEOS += [("avi", "mp2"), ("asf", "wmav2")]
VALID_FILES = [
    *(sound_file(TONE, *kind, RATE_HZ) for kind in FILES),
    *(encode_file(np.repeat(TONE, 2)[:, None], *kind, 2 * RATE_HZ) for kind in VIDEOS),
]
CONCURRENT_FILES = 8


@st.composite
def corrupt_files(draw: st.DrawFn) -> bytes:
    """Draw a file with changed bytes (mainly in its header), large 4-byte numbers, a deleted part
    and a truncated end."""
    data = bytearray(draw(st.sampled_from(VALID_FILES)))
    positions = st.integers(0, 80) | st.integers(0, len(data) - 1)
    for position in draw(st.lists(positions, max_size=8)):
        data[position] = draw(st.sampled_from([0, 1, 0x7F, 0x80, 0xFF]) | st.integers(0, 255))
    for position in draw(st.lists(positions, max_size=2)):
        number = draw(st.sampled_from([2**31 - 1, 2**31, 2**32 - 1, 2**28, 2**24]))
        is_little_endian = draw(st.booleans())
        data[position : position + 4] = number.to_bytes(4, "little" if is_little_endian else "big")
    if draw(st.booleans()):
        position = draw(positions)
        del data[position : position + draw(st.integers(1, 16))]
    return bytes(data[: draw(st.none() | st.integers(0, len(data)))])


FILES_OR_BYTES = corrupt_files() | st.binary(max_size=200)


@pytest.mark.timeout(3600)
@inputs(min_count=150 // CONCURRENT_FILES, share=0.5 / CONCURRENT_FILES)
@given(st.lists(FILES_OR_BYTES, min_size=CONCURRENT_FILES, max_size=CONCURRENT_FILES))
def test_any_file_gives_finite_samples_or_an_error(files: list[bytes]) -> None:
    start_s = time.monotonic()
    with ThreadPoolExecutor(CONCURRENT_FILES) as threads:
        for samples in threads.map(decode, files):
            assert np.isfinite(samples).all()
            assert len(samples) <= MAX_DURATION_S * MAX_SAMPLE_RATE_HZ
    assert time.monotonic() - start_s < MAX_DECODING_S


def decode(data: bytes) -> NDArray[np.float32]:
    """Return the samples before the first error. Raise errors that have no HTTP status."""
    blocks = [np.empty(0, np.float32)]
    with tempfile.TemporaryFile() as file:
        file.write(data)
        try:
            with SandboxedDecoder(file, MAX_DURATION_S) as decoder:
                for block in decoder:
                    blocks.append(block)
            assert any(map(len, blocks))
        except ProtocolError as error:
            if not error.code.status:
                raise
    return np.concatenate(blocks)
