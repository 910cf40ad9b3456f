"""Detects live audio that is not the PCM that its client announced: files, and compressed data.

FLAC, Ogg, WebM, MP4 and tagged MP3 are rejected by their first bytes (``protocol.options``).
The formats here are less certain, so their clients only get a warning.
"""

import numpy as np
from numpy.typing import NDArray

from service.protocol.options import AudioFormat, Encoding

CHECKED_S = 10.0
"""Duration of the start of a session that is checked for noise, in blocks of BLOCK_S."""
BLOCK_S = 1.0
# Compressed data, and samples of another byte order, are uniform noise: RMS 0.58 of full scale.
# Music is never white: some of its autocorrelations up to a lag of MAX_LAG samples are large.
MIN_RMS, MAX_CORRELATION, MAX_LAG = 0.4, 0.15, 8
NOISE = (
    "the audio is white noise at full scale: it may be compressed data or have another "
    "encoding or byte order; send little-endian PCM"
)


class InputCheck:
    """Checks the start of a live stream. Call ``check`` with all of its bytes, in order."""

    def __init__(self, audio: AudioFormat) -> None:
        self._audio = audio
        self._block_bytes = int(BLOCK_S * audio.sample_rate_hz) * audio.pcm_frame_bytes
        self._remaining = round(CHECKED_S / BLOCK_S)
        self._data = b""
        self._is_start = True

    def check(self, data: bytes) -> str | None:
        """Return a warning, once at most."""
        if not self._remaining:
            return None
        if self._is_start:
            self._is_start = False
            if name := container_name(data):
                self._remaining = 0
                return f"the audio starts like {name}, not like PCM: send its samples alone"
        self._data += data
        while self._remaining and len(self._data) >= self._block_bytes:
            block, self._data = (
                self._data[: self._block_bytes],
                self._data[self._block_bytes :],
            )
            self._remaining -= 1
            if self._is_noise(block):
                self._remaining = 0
                return NOISE
        return None

    def _is_noise(self, block: bytes) -> bool:
        """Return True if a block is noise. Floats are not checked, because compressed data read
        as floats soon contains an invalid sample."""
        if self._audio.encoding is not Encoding.PCM_S16LE:
            return False
        values = np.frombuffer(block, "<i2").reshape(-1, self._audio.channels)
        return is_noise(values[:, 0].astype(np.float32) / np.float32(2**15))


def container_name(data: bytes) -> str | None:
    """Return the format of a file or bitstream that starts with these bytes; None for PCM."""
    if data[:4] in (b"RIFF", b"RF64") and data[8:12] == b"WAVE":
        return "a WAV file"
    if data[:4] == b"FORM" and data[8:12] in (b"AIFF", b"AIFC"):
        return "an AIFF file"
    if data[:4] == b".snd":
        return "an AU file"
    if data[:4] == b"caff":
        return "a CAF file"
    for name, frame_bytes in (("AAC (ADTS)", _adts_bytes), ("MP3", _mp3_bytes)):
        size = frame_bytes(data)
        # Two frames in sequence: PCM has these 11 bits once in 2048 samples.
        if size and frame_bytes(data[size:]):
            return name
    return None


def is_noise(samples: NDArray[np.float32]) -> bool:
    """True for white noise close to full scale; samples: [n], full scale 1.0."""
    power = float(samples @ samples)
    if power < MIN_RMS**2 * len(samples):
        return False
    lags = (float(samples[lag:] @ samples[:-lag]) for lag in range(1, MAX_LAG + 1))
    return all(abs(correlation) < MAX_CORRELATION * power for correlation in lags)


def _adts_bytes(data: bytes) -> int:
    """Return the length of the ADTS frame that starts here; 0 if none does."""
    if len(data) < 7 or data[0] != 0xFF or data[1] & 0xF6 != 0xF0:
        return 0
    size = (data[3] & 3) << 11 | data[4] << 3 | data[5] >> 5
    return size if size > 7 else 0


def _mp3_bytes(data: bytes) -> int:
    """Return the length of the frame of MPEG layer III that starts here; 0 if none does."""
    if len(data) < 4 or data[0] != 0xFF or data[1] & 0xE6 != 0xE2:
        return 0
    version, rate_index = data[1] >> 3 & 3, data[2] >> 2 & 3
    bit_rate_index, padding = data[2] >> 4, data[2] >> 1 & 1
    if version == 1 or rate_index == 3 or bit_rate_index in (0, 15):
        return 0
    mpeg1 = version == 3
    kbits = _KBITS_MPEG1 if mpeg1 else _KBITS_MPEG2
    rate_hz = _RATES_HZ[rate_index] // (1 if mpeg1 else 2 if version == 2 else 4)
    return (144 if mpeg1 else 72) * 1000 * kbits[bit_rate_index] // rate_hz + padding


_RATES_HZ = (44_100, 48_000, 32_000)
_KBITS_MPEG1 = (0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320)
_KBITS_MPEG2 = (0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160)
