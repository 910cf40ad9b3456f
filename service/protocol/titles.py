"""Titles of recordings and scores."""

import re

MAX_TITLE = 200  # maximum number of characters


def readable_title(title: str) -> str:
    """Shorten a title to MAX_TITLE characters, and remove control characters, which XML does not
    allow. Decode surrogates, which represent bytes that are not UTF-8 (PEP 383), as Latin-1."""
    title = re.sub("[\udc80-\udcff]", lambda byte: chr(ord(byte[0]) - 0xDC00), title[:MAX_TITLE])
    return "".join(filter(str.isprintable, title)).strip()
