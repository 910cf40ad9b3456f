"""Telephone and MP3 coding, aligned with the original sound."""

import io

import numpy as np
import soundfile
from numpy.typing import NDArray
from scipy import signal

TELEPHONE_HZ = (300.0, 3400.0)
MU = 255.0  # ITU-T G.711
MP3_DELAY = 576 + 529
"""Samples that an MP3 encoder and decoder put before a sound, where the file is too small to
say so (LAME leaves out its header below about 24 kbit/s); else the decoder removes them."""


def telephone(audio: NDArray[np.float32], sample_rate: int) -> NDArray[np.float32]:
    """300 to 3400 Hz, in 8 bits of mu-law; same length."""
    band = signal.butter(3, TELEPHONE_HZ, "bandpass", fs=sample_rate, output="sos")
    narrow = np.clip(signal.sosfilt(band, audio), -1, 1)
    code = np.sign(narrow) * np.log1p(MU * np.abs(narrow)) / np.log1p(MU)
    code = np.rint(code * 127) / 127
    return np.asarray(np.sign(code) * np.expm1(np.abs(code) * np.log1p(MU)) / MU, np.float32)


def mp3(audio: NDArray[np.float32], sample_rate: int, compression: float) -> NDArray[np.float32]:
    """Encoded and decoded; same length, without delay.

    compression: 0 (as many bits as the format has, 64 kbit/s at 11,025 Hz) to 0.9 (16 kbit/s).
    """
    file = io.BytesIO()
    soundfile.write(
        file,
        audio,
        sample_rate,
        format="MP3",
        subtype="MPEG_LAYER_III",
        compression_level=compression,
        bitrate_mode="CONSTANT",
    )
    file.seek(0)
    decoded, _ = soundfile.read(file, dtype="float32")
    delay = MP3_DELAY if len(decoded) != len(audio) else 0
    out = np.zeros_like(audio)
    kept = decoded[delay : delay + len(audio)]
    out[: len(kept)] = kept
    return out
