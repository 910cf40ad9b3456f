"""What can be answered without reading: the baselines of the table."""

from collections import Counter
from collections.abc import Sequence

from training.lambada.text.passages import most_frequent

COMMON = 500
"""Words that the frequent-word baseline leaves out; this many make it strongest on LAMBADA."""


def random_word(passages: Sequence[Sequence[str]]) -> float:
    """Expected accuracy of any distinct word of the passage (Paperno et al. 2016: 1.6 %)."""
    hits = [(words[-1] in words[:-1]) / len(set(words[:-1])) for words in passages]
    return sum(hits) / len(hits)


def frequent_word(passages: Sequence[Sequence[str]], common: int = 0) -> float:
    """Accuracy of the passage's most frequent word, the first of equals.

    common: number of the file's most frequent words to leave out. Punctuation does not count.
    """
    left_out = most_frequent(passages, common)
    right = 0
    for words in passages:
        counts = Counter(w for w in words[:-1] if w[0].isalpha() and w not in left_out)
        right += bool(counts) and counts.most_common(1)[0][0] == words[-1]
    return right / len(passages)
