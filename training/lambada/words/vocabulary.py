"""Words as the symbols of a network."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from model.storage import WeightsError, write_whole
from training.lambada.text.novels import Novels

KINDS = 4
"""Of unknown words: names or not, of each those that occur once in a passage and more often."""
UNKNOWN = 1
"""Symbol of any unknown word (released code), or of what is unknown and no word; 0 is padding."""
NOVELS_OF_A_NAME = 4
"""A name in at least this many novels is common."""


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
    """Symbols of each of the KINDS, before the first word's, for the different unknown words of
    one passage."""
    names: frozenset[str] = frozenset()
    """Words without symbols that are known to be names."""

    def __post_init__(self) -> None:
        if self.mask >= len(self):
            raise ValueError(f"{len(self.words)} words are too few: symbol {self.mask} is the mask")

    @classmethod
    def released(cls, words: Iterable[str], vectors: bool) -> Vocabulary:
        """As the released code numbers them; `vectors`: with a pre-trained embedding."""
        return cls(tuple(words), first=2 if vectors else 4, mask=3)

    @classmethod
    def clean(cls, words: Iterable[str], numbered: int, names: Iterable[str] = ()) -> Vocabulary:
        """With a separate mask, and symbols that distinguish a passage's unknown words."""
        known = tuple(words)
        others = frozenset(names).difference(known)
        return cls(known, 3 + KINDS * numbered, mask=2, numbered=numbered, names=others)

    @cached_property
    def symbols(self) -> dict[str, int]:
        """Of each word."""
        return {word: at for at, word in enumerate(self.words, start=self.first)}

    def __len__(self) -> int:
        return self.first + len(self.words)

    def save(self, path: Path) -> None:
        """Writes JSON that :meth:`load` reads."""
        data = {"first": self.first, "mask": self.mask, "numbered": self.numbered}
        lists = {"words": self.words, "names": sorted(self.names)}
        write_whole(path, json.dumps({**data, **lists}).encode())

    @classmethod
    def load(cls, path: Path) -> Vocabulary:
        """Raises WeightsError."""
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
            lists = {"words": tuple(data["words"]), "names": frozenset(data["names"])}
            return cls(**{**data, **lists})
        except (OSError, KeyError, TypeError, ValueError) as error:
            raise WeightsError(f"cannot read the vocabulary {path}: {error}") from error


def known_words(novels: Novels) -> list[str]:
    """The words of novels that other novels will share, most frequent first.

    Names that fewer than half of the novels have are left out: with numbered symbols in their
    place, a network learns what names do and not who Alice is.
    """
    shared = ~novels.names | (2 * novels.spread() >= len(novels.books))
    return [novels.words[at] for at in np.flatnonzero(shared)]


def common_names(novels: Novels) -> list[str]:
    """Names of several novels, which others may have too.

    Rarer names look like any unknown word, as names do that are in none of these novels.
    """
    common = novels.names & (novels.spread() >= NOVELS_OF_A_NAME)
    return [novels.words[at] for at in np.flatnonzero(common)]
