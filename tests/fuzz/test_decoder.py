"""Bytes that may be an audio file: finite samples, or a documented error."""

import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.audio.decode import AudioDecoder
from service.protocol.errors import ProtocolError
from tests.fuzz.conftest import inputs
from tests.service.apps import sound_file
from tests.service.audio.encode import encoded

RATE_HZ = 8_000
MOST_S = 2.0


TONE = (0.5 * np.sin(np.arange(RATE_HZ // 4) / 5)).astype(np.float32)
FILES = [("WAV", "PCM_16"), ("WAV", "FLOAT"), ("FLAC", "PCM_16"), ("OGG", "VORBIS")]
FILES += [("MP3", "MPEG_LAYER_III"), ("AIFF", "PCM_24")]
FILMS = [("ipod", "aac"), ("adts", "aac"), ("webm", "libopus"), ("mpegts", "aac")]
WHOLE = [
    *(sound_file(TONE, *kind, RATE_HZ) for kind in FILES),
    *(encoded(TONE[:, None], *kind, RATE_HZ) for kind in FILMS),
]


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A file with some bytes changed, most of them in its header, some taken out, and an end."""
    data = bytearray(draw(st.sampled_from(WHOLE)))
    where = st.integers(0, 80) | st.integers(0, len(data) - 1)
    for at in draw(st.lists(where, max_size=8)):
        data[at] = draw(st.sampled_from([0, 1, 0x7F, 0x80, 0xFF]) | st.integers(0, 255))
    if draw(st.booleans()):
        at = draw(where)
        del data[at : at + draw(st.integers(1, 16))]
    return bytes(data[: draw(st.none() | st.integers(0, len(data)))])


@pytest.mark.timeout(3600)
@inputs(few=150, share=0.1)
@given(damaged() | st.binary(max_size=200))
def test_a_file_gives_finite_samples_or_says_why_not(data: bytes) -> None:
    samples = 0
    try:
        with AudioDecoder(io.BytesIO(data), max_duration_s=MOST_S) as decoder:
            for block in decoder:
                assert np.isfinite(block).all()
                samples += len(block)
            assert 0 < samples <= MOST_S * decoder.audio.sample_rate_hz
    except ProtocolError as error:
        code = error.code
        assert code.status
