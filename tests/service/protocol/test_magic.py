"""Files that are sent as PCM are recognised, PCM is not taken for one."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.protocol.magic import file_format
from tests.service.apps import sound_file
from tests.service.audio.encode import encoded

NOISE = np.random.default_rng(0).uniform(-0.3, 0.3, (22_050, 2)).astype(np.float32)


@pytest.mark.parametrize(
    ("container", "codec", "name"),
    [
        ("webm", "libopus", "WebM or Matroska"),
        ("ogg", "flac", "Ogg"),
        ("flac", "flac", "FLAC"),
        ("mp3", "libmp3lame", "MP3"),
        ("mp4", "aac", "MP4 or M4A"),
    ],
)
def test_files_are_named(container: str, codec: str, name: str) -> None:
    assert file_format(encoded(NOISE, container, codec, 48_000)) == name


@pytest.mark.parametrize("rate_hz", [8_000, 22_050, 44_100])
def test_mp3_without_a_tag_is_named(rate_hz: int) -> None:
    assert file_format(sound_file(NOISE, "MP3", "MPEG_LAYER_III", rate_hz)) == "MP3"


@given(st.binary(max_size=64), st.sampled_from([b"\xff\xfb", b"\xff\xf3"]))
def test_pcm_is_not_taken_for_a_file(data: bytes, head: bytes) -> None:
    assert file_format(NOISE.astype("<f4").tobytes()) is None
    assert file_format(head + data.replace(head, b"")) is None
    assert file_format((head + data)[:2] * 4000) is None
