"""Words as the symbols of a network."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from model.checkpoint import CheckpointError, write_whole
from training.lambada.novels import Novels

UNKNOWN = 1
"""Symbol of any unknown word (released code), or of what is unknown and no word; 0 is padding."""


@dataclass(frozen=True)
class Vocabulary:
    """Symbols of special meaning, then one for each word.

    The released code has padding, unknown and, where it learns the embedding itself, two more
    special symbols, the second being the mask. With word vectors it has the first two alone and
    yet masks with symbol 3, which is the second word of the file.
    """

    words: tuple[str, ...]
    first: int
    """Symbol of the first word."""
    mask: int
    """Symbol that stands in the place of the answer."""
    numbered: int = 0
    """Symbols, before the first word's, for the different unknown words of one passage."""

    @classmethod
    def released(cls, words: Iterable[str], vectors: bool) -> Vocabulary:
        """As the released code numbers them; `vectors`: with a pre-trained embedding."""
        return cls(tuple(words), first=2 if vectors else 4, mask=3)

    @classmethod
    def clean(cls, words: Iterable[str], numbered: int) -> Vocabulary:
        """A mask of its own, and symbols that tell unknown words of a passage apart."""
        return cls(tuple(words), first=3 + numbered, mask=2, numbered=numbered)

    @cached_property
    def symbols(self) -> dict[str, int]:
        """Of each word."""
        return {word: at for at, word in enumerate(self.words, start=self.first)}

    def __len__(self) -> int:
        """Symbols in all."""
        return self.first + len(self.words)

    def save(self, path: Path) -> None:
        """Writes JSON that :meth:`load` reads."""
        data = {"first": self.first, "mask": self.mask, "numbered": self.numbered}
        write_whole(path, json.dumps({**data, "words": self.words}).encode())

    @classmethod
    def load(cls, path: Path) -> Vocabulary:
        """Raises CheckpointError."""
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
            return cls(**{**data, "words": tuple(data["words"])})
        except (OSError, KeyError, TypeError, ValueError) as error:
            raise CheckpointError(f"cannot read the vocabulary {path}: {error}") from error


def known_words(novels: Novels) -> list[str]:
    """The words of novels that other novels will share, most frequent first.

    Names that fewer than half of the novels have are left out: with numbered symbols in their
    place, a network learns what names do and not who Alice is.
    """
    spread = np.zeros(len(novels.words), dtype=np.int64)
    ends = [*novels.books[1:], len(novels.text)]
    for begin, end in zip(novels.books, ends, strict=True):
        spread[np.unique(novels.text[begin:end])] += 1
    shared = ~novels.names | (2 * spread >= len(novels.books))
    return [novels.words[at] for at in np.flatnonzero(shared)]
