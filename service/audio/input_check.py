"""Warns about live audio that is not the PCM that its client announced.

The service rejects FLAC, Ogg, WebM, MP4 and tagged MP3 by their first bytes (``file_format``). This
module only warns about headers of PCM files, and about white noise, which may be compressed data.
"""

import numpy as np
from numpy.typing import NDArray

from service.protocol.options import AudioFormat, Encoding

CHECKED_S = 10.0  # duration from the start of a session that is checked for noise
BLOCK_S = 1.0  # duration of the blocks that are checked separately
# Compressed data, and samples in the wrong byte order, look like uniform noise with an RMS of 0.58
# times full scale. Music is never white: its autocorrelation is large at some lag up to MAX_LAG.
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
        """Return a warning, or None. A stream gets at most one warning."""
        if not self._remaining:
            return None
        if self._is_start:
            self._is_start = False
            if name := container_name(data):
                self._remaining = 0
                return f"the audio starts like {name}: send its samples without the file header"
            if self._audio.encoding is not Encoding.PCM_S16LE:
                # Compressed data sent as floats soon contains a NaN, which the decoder rejects.
                self._remaining = 0
                return None
        self._data += data
        while self._remaining and len(self._data) >= self._block_bytes:
            block, self._data = self._data[: self._block_bytes], self._data[self._block_bytes :]
            self._remaining -= 1
            values = np.frombuffer(block, "<i2").reshape(-1, self._audio.channels)
            if is_noise(values[:, 0].astype(np.float32) / np.float32(2**15)):
                self._remaining = 0
                return NOISE
        return None


def container_name(data: bytes) -> str | None:
    """Return the kind of PCM file that starts with these bytes, or None."""
    if data[:4] in (b"RIFF", b"RF64") and data[8:12] == b"WAVE":
        return "a WAV file"
    if data[:4] == b"FORM" and data[8:12] in (b"AIFF", b"AIFC"):
        return "an AIFF file"
    if data[:4] == b".snd":
        return "an AU file"
    if data[:4] == b"caff":
        return "a CAF file"
    return None


def is_noise(samples: NDArray[np.float32]) -> bool:
    """Return True for white noise close to full scale. samples: [n], full scale 1.0."""
    power = float(samples @ samples)
    if power < MIN_RMS**2 * len(samples):
        return False
    lags = (float(samples[lag:] @ samples[:-lag]) for lag in range(1, MAX_LAG + 1))
    return all(abs(correlation) < MAX_CORRELATION * power for correlation in lags)
