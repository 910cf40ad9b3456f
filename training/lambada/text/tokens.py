"""Prose cut into tokens and sentences the way LAMBADA's files are.

Those were tokenised as the Penn Treebank is: quotation marks are `` and '' (single ones ` and '),
contractions are split (do n't, it 's), punctuation stands alone. The files are in lower case; the
case is kept here, as it distinguishes names from other words.
"""

import re
from collections.abc import Iterator

OPENING, CLOSING = ("``", "`"), ("''", "'")
TERMINAL = (".", "?", "!")

_STRAIGHT = str.maketrans({"“": '"', "”": '"', "‘": "'", "’": "'", "_": "", "—": "--"})
_PARAGRAPH = re.compile(r"\n\s*\n")
_TOKEN = re.compile(
    r"""
    (?:Mr|Mrs|Ms|Dr|St|Jr|Sr|Prof|Capt|Col|Gen|Lt|Sgt|Rev|Hon)\.  # abbreviations keep their stop
    | \.\.+ | --+
    | [^\W_]+ (?: [-'.] [^\W_]+ )* '?  # words, with hyphens, apostrophes and stops within
    | \S
    """,
    re.VERBOSE,
)
_CONTRACTION = re.compile(r"(?i)(.+?)(n't|'(?:s|m|d|ll|re|ve))")


def paragraphs(text: str) -> Iterator[list[str]]:
    """The tokens of each paragraph; those that end in no punctuation (headings) are left out."""
    for paragraph in _PARAGRAPH.split(text.translate(_STRAIGHT)):
        tokens = tokenise(paragraph)
        closed = [token for token in tokens[-3:] if token not in CLOSING]
        if closed and closed[-1] in TERMINAL:
            yield tokens


def tokenise(text: str) -> list[str]:
    """Tokens in their own case, quotation marks straight on input and directed on output."""
    tokens: list[str] = []
    for match in _TOKEN.finditer(text):
        token, at = match[0], match.start()
        if token in ('"', "'"):
            opens = at == 0 or text[at - 1].isspace() or text[at - 1] in "([-\"'"
            single = token == "'"
            tokens.append((OPENING if opens else CLOSING)[single])
            continue
        quote = token.endswith("'") and len(token) > 1
        word = token.removesuffix("'") if quote else token
        contraction = _CONTRACTION.fullmatch(word)
        tokens += contraction.groups() if contraction else (word,)
        if quote:
            tokens.append("'")
    return tokens


def sentence_starts(tokens: list[str]) -> list[int]:
    """Where the sentences of a paragraph begin, the first at 0.

    One ends with a full stop, question or exclamation mark and the quotation marks that close
    behind it, unless the next word is in lower case ("What?" he said).
    """
    starts = [0]
    for at in range(1, len(tokens)):
        before = at - 1
        while before > 0 and tokens[before] in CLOSING:
            before -= 1
        ended = tokens[before] in TERMINAL and tokens[at] not in (*CLOSING, *TERMINAL)
        if ended and (tokens[at] in OPENING or not tokens[at][0].islower()):
            starts.append(at)
    return starts
