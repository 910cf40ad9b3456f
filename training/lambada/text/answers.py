"""Which words of novels make answers like LAMBADA's.

The rule follows the development passages. Of their answers, where they stand in the passage, more
than half are names and most others nouns; nine of ten last occurred 16 words before or earlier;
hardly any begins a sentence or follows an opening quotation mark. So in training

- the answer is a name, or a noun beyond the most frequent words;
- it last occurred at least APART words before;
- the word before it is a word or a comma.
"""

import numpy as np
from numpy.typing import NDArray

from training.lambada.text.novels import Novels

DETERMINERS = frozenset(
    "the a an his her my your their our its this that these those no some any every".split()
)
NOUN_SHARE = 0.15
"""A word is a noun where at least this share of its occurrences follows a determiner."""
APART = 12


def nouns(novels: Novels) -> NDArray[np.bool_]:
    """(words,) whether each is a noun by this rule, which passes some adjectives too."""
    determiner = np.array([word in DETERMINERS for word in novels.words])
    follows = novels.text[1:][determiner[novels.text[:-1]]]
    after = np.bincount(follows, minlength=len(novels.words))
    return after >= NOUN_SHARE * novels.counts


def like_lambada(novels: Novels, previous: NDArray[np.int64], common: int) -> NDArray[np.bool_]:
    """(tokens,) whether each is an answer by this rule.

    previous: (tokens,) where each token occurred last before; common: most frequent words that
    are excluded unless they are names.
    """
    words = nouns(novels) & ~novels.names
    words[:common] = False
    leads_on = np.array([word[0].isalpha() or word == "," for word in novels.words])
    apart = np.arange(len(novels.text)) - previous >= APART
    inside = np.append(False, leads_on[novels.text[:-1]])
    return (novels.names | words)[novels.text] & apart & inside
