"""Titles of recordings and scores."""

import re

MAX_TITLE = 200  # characters


def readable_title(title: str) -> str:
    """Return a title without control characters, which XML lacks, of at most MAX_TITLE characters.
    Surrogates of bytes that are not UTF-8 (PEP 383) become Latin-1."""
    title = re.sub("[\udc80-\udcff]", lambda byte: chr(ord(byte[0]) - 0xDC00), title[:MAX_TITLE])
    return "".join(filter(str.isprintable, title)).strip()
