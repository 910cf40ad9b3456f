"""Names of file formats by their first bytes, for clients that send files as PCM."""

_FORMATS = {
    b"\x1aE\xdf\xa3": "WebM or Matroska",
    b"OggS": "Ogg",
    b"fLaC": "FLAC",
    b"ID3": "MP3",
}
# kbit/s of MPEG layer III by its index, in version 1 and in the others; Hz in version 1.
_KBITS = (
    (0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 0),
    (0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160, 0),
)
_RATES_HZ = (44_100, 48_000, 32_000, 0)


def file_format(data: bytes) -> str | None:
    """The format of a file that begins so; None for what may be PCM, which a WAV nearly is."""
    if data[4:8] == b"ftyp":
        return "MP4 or M4A"
    length = _mp3_bytes(data)
    if length and data[length : length + 2] == data[:2]:
        return "MP3"
    return next((name for magic, name in _FORMATS.items() if data.startswith(magic)), None)


def _mp3_bytes(data: bytes) -> int:
    """Of the frame of MPEG layer III that begins here; 0 if none does (ISO 11172-3, 2.4.1)."""
    if len(data) < 4 or data[0] != 0xFF or data[1] & 0xE6 != 0xE2:
        return 0
    version = data[1] >> 3 & 3  # 3: 1, 2: 2, 0: 2.5
    rate_hz = _RATES_HZ[data[2] >> 2 & 3] >> (3 - version if version else 2)
    kbits = _KBITS[version != 3][data[2] >> 4]
    if not kbits or not rate_hz:
        return 0
    return (144 if version == 3 else 72) * 1000 * kbits // rate_hz + (data[2] >> 1 & 1)
