"""Warnings for live audio that is a file, or compressed, instead of PCM."""

from functools import cache

import numpy as np
import pytest
from numpy.typing import NDArray

from service.audio.input_check import NOISE, InputCheck
from service.protocol.options import AudioFormat, Encoding
from tests.service.apps import sound_file
from tests.service.audio.encode import encoded

RATE_HZ = 44_100
TIME_S = np.arange(6 * RATE_HZ) / RATE_HZ
CHUNK_BYTES = RATE_HZ // 10 * 2  # 100 ms


@cache
def music() -> NDArray[np.float32]:
    """Loud chords of decaying harmonics, with the noise of a room."""
    samples = 0.002 * np.random.default_rng(0).standard_normal(len(TIME_S))
    for hz in (110.0, 277.2, 440.0, 659.3):
        for overtone in range(1, 8):
            wave = np.sin(2 * np.pi * hz * overtone * TIME_S)
            samples += 0.3 / overtone * np.exp(-2 * (TIME_S % 0.5)) * wave
    return np.clip(samples, -1, 1).astype(np.float32)


SUBTYPES = {"WAV": "PCM_16", "AIFF": "PCM_16", "AU": "PCM_16", "CAF": "PCM_24"}
SUBTYPES["MP3"] = "MPEG_LAYER_III"


@cache
def file(name: str) -> bytes:
    if name == "AAC":
        return encoded(music()[:, None], "adts", "aac", RATE_HZ)
    return sound_file(music(), name, SUBTYPES[name], RATE_HZ)


def warnings(data: bytes, **audio: int) -> list[str]:
    check = InputCheck(
        AudioFormat(
            encoding=Encoding.PCM_S16LE,
            **{"sample_rate_hz": audio.get("rate_hz", RATE_HZ), "channels": audio.get("n", 1)},
        )
    )
    chunks = (data[at : at + CHUNK_BYTES] for at in range(0, len(data), CHUNK_BYTES))
    return [warning for chunk in chunks if (warning := check.check(chunk))]


@pytest.mark.parametrize("name", ["WAV", "AIFF", "AU", "CAF"])
def test_the_first_bytes_of_a_file_give_one_warning(name: str) -> None:
    (warning,) = warnings(file(name))
    assert warning.startswith("the audio starts like ")
    assert name in warning


@pytest.mark.parametrize("name", ["AIFF", "AU", "MP3", "AAC"])
@pytest.mark.parametrize("channels", [1, 2])
def test_a_file_from_its_middle_on_gives_one_warning(name: str, channels: int) -> None:
    # At 8 kHz, as of a client whose settings are all wrong, a second has fewer bytes.
    data = file(name)
    assert warnings(data[len(data) // 3 & -2 :], n=channels, rate_hz=8_000) == [NOISE]


def test_pcm_gives_no_warning() -> None:
    sine = np.sin(2 * np.pi * 2000 / 8000 * np.arange(80_000))
    square = np.sign(np.sin(TIME_S * 2 * np.pi * 220.5))
    hiss = np.random.default_rng(0).normal(0, 0.1, 5 * RATE_HZ)
    for samples in (music(), 10 * music(), sine, square, hiss, np.zeros(RATE_HZ)):
        pcm = (32767 * np.clip(samples, -1, 1)).astype("<i2").tobytes()
        assert warnings(pcm) == []
        assert warnings(pcm, n=2) == []
