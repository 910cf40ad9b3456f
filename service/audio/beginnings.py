"""Where in a file another may begin, after rubbish or after the file before it."""

import io
import math
import re
from collections.abc import Iterator
from typing import BinaryIO

TAG = re.compile(rb"ID3[\x02-\x04]\x00[\x00-\xf0][\x00-\x7f]{4}")  # before an MP3 or AAC
OGG = b"OggS"
_KINDS = [
    *(rb"RIFF|RIFX|riff\x2e\x91\xcf\x11|FORM|caff|\.snd|fLaC|wvpk|OggS\x00\x02|#!AMR".split(b"|")),
    *(rb"\x1aE\xdf\xa3|FLV\x01|TTA1|MAC\x20|DSD\x20|\x00\x00\x01\xba|....ftyp".split(b"|")),
    *(b"0&\xb2u\x8ef\xcf\x11", TAG.pattern),
]
_MARK_BYTES = 10  # at most
_RUBBISH = 1 << 16  # bytes of it that are skipped, or read at a time


def after_rubbish(file: BinaryIO) -> Iterator[int]:
    """Bytes at which a file of any kind may begin, in order."""
    return _found(file, 1, _RUBBISH, b"|".join(_KINDS))


def after_another(file: BinaryIO, begin: int, end: int) -> Iterator[int]:
    """Bytes at which a file may follow that lies from ``begin`` to ``end``, if that can be known.
    It is of the same kind, or of that which begins at the end."""
    for place in (end, begin):
        file.seek(place)
        head = file.read(_MARK_BYTES)
        for kind in _KINDS:
            if re.match(kind, head, re.DOTALL):
                return _found(file, max(end, begin + 1), math.inf, kind)
    return iter(())


def is_chain(file: BinaryIO, begin: int) -> bool:
    """Whether an OGG ends with another stream: FFmpeg takes its length for that of the first."""
    file.seek(begin)
    head, page = file.read(18), _last_page(file, begin)
    return head[:4] == OGG and page[14:18] not in (b"", head[14:])  # the number of the stream


def is_cut(file: BinaryIO, begin: int) -> bool:
    """Whether an OGG ends within a page, as a recording or download that broke off does."""
    file.seek(begin)
    if file.read(4) != OGG or not (page := _last_page(file, begin)):
        return False
    segments = page[27 : 27 + page[26]] if len(page) >= 27 else b""
    return len(page) < 27 or len(page) < 27 + page[26] + sum(segments)


def _last_page(file: BinaryIO, begin: int) -> bytes:
    """The last page of an OGG, and what follows it; empty if none begins near the end."""
    file.seek(max(begin, file.seek(0, io.SEEK_END) - _RUBBISH))
    tail = file.read()
    return tail[tail.rfind(OGG) :] if OGG in tail else b""


def _found(file: BinaryIO, start: int, stop: float, kind: bytes) -> Iterator[int]:
    """Where a file of this kind may begin, from ``start`` on and in order."""
    while start < stop:
        file.seek(start)
        data = file.read(_RUBBISH + _MARK_BYTES)
        for match in re.finditer(kind, data, re.DOTALL):
            if match.start() < _RUBBISH:
                yield start + match.start()
        if len(data) <= _MARK_BYTES:
            return
        start += _RUBBISH
