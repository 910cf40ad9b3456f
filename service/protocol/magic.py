"""Names of file formats by their first bytes, for clients that send files as PCM."""

_FORMATS = {
    b"\x1aE\xdf\xa3": "WebM or Matroska",
    b"OggS": "Ogg",
    b"fLaC": "FLAC",
    b"ID3": "MP3",
    b"FORM": "an AIFF file",
}


def recognised(data: bytes) -> str | None:
    """The format of a file that begins so; None for what may be PCM, which a WAV nearly is."""
    if data[4:8] == b"ftyp":
        return "MP4 or M4A"
    return next((name for magic, name in _FORMATS.items() if data.startswith(magic)), None)
