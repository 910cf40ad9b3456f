"""Tests of the warnings for live audio that is a file or compressed data instead of PCM."""

from functools import cache

import numpy as np
import pytest
from numpy.typing import NDArray

from service.audio.input_check import NOISE, InputCheck
from service.protocol.options import AudioFormat, Encoding
from tests.service.apps import sound_file
from tests.service.audio.encode import encode_file

RATE_HZ = 44_100
TIME_S = np.arange(6 * RATE_HZ) / RATE_HZ
CHUNK_BYTES = RATE_HZ // 10 * 2  # 100 ms


@cache
def music() -> NDArray[np.float32]:
    """Return loud chords of decaying harmonics with background noise."""
    samples = 0.002 * np.random.default_rng(0).standard_normal(len(TIME_S))
    for hz in (110.0, 277.2, 440.0, 659.3):
        for overtone in range(1, 8):
            wave = np.sin(2 * np.pi * hz * overtone * TIME_S)
            samples += 0.3 / overtone * np.exp(-2 * (TIME_S % 0.5)) * wave
    return np.clip(samples, -1, 1).astype(np.float32)


SUBTYPES = {"CAF": "PCM_24", "MP3": "MPEG_LAYER_III"}


@cache
def file(name: str) -> bytes:
    if name == "AAC":
        return encode_file(music()[:, None], "adts", "aac", RATE_HZ)
    return sound_file(music(), name, SUBTYPES.get(name, "PCM_16"), RATE_HZ)


def warnings(data: bytes, rate_hz: int = RATE_HZ, channels: int = 1) -> list[str]:
    check = InputCheck(
        AudioFormat(encoding=Encoding.PCM_S16LE, sample_rate_hz=rate_hz, channels=channels)
    )
    chunks = (data[at : at + CHUNK_BYTES] for at in range(0, len(data), CHUNK_BYTES))
    return [warning for chunk in chunks if (warning := check.check(chunk))]


@pytest.mark.parametrize("name", ["WAV", "AIFF", "AU", "CAF"])
def test_file_header_gives_one_warning(name: str) -> None:
    (warning,) = warnings(file(name))
    assert warning.startswith("the audio starts like ")
    assert name in warning


@pytest.mark.parametrize("head", [b"RIFF\0\0\0\0AVI ", b"FORM\0\0\0\x008SVX"])
def test_other_files_with_the_same_first_bytes_are_not_named(head: bytes) -> None:
    assert warnings(head + bytes(CHUNK_BYTES)) == []


@pytest.mark.parametrize("name", ["AIFF", "AU", "MP3", "AAC"])
@pytest.mark.parametrize("channels", [1, 2])
def test_compressed_data_gives_one_warning(name: str, channels: int) -> None:
    # A client with wrong settings may also state 8 kHz. One second then has fewer bytes.
    data = file(name)
    assert warnings(data[len(data) // 3 & -2 :], 8_000, channels) == [NOISE]


def test_pcm_gives_no_warning() -> None:
    sine = np.sin(2 * np.pi * 2000 / 8000 * np.arange(80_000))
    square = np.sign(np.sin(TIME_S * 2 * np.pi * 220.5))
    hiss = np.random.default_rng(0).normal(0, 0.1, 5 * RATE_HZ)
    for samples in (music(), 10 * music(), sine, square, hiss, np.zeros(RATE_HZ)):
        pcm = (32767 * np.clip(samples, -1, 1)).astype("<i2").tobytes()
        assert warnings(pcm) == []
        assert warnings(pcm, channels=2) == []
