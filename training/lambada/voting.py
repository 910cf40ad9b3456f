"""Which word a network answers with, from its scores for several placings of a passage."""

from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from training.lambada.encoding import Encoded
from training.loop.symbol_losses import ANSWER

Scores = Sequence[NDArray[np.float32]]
"""Of each placing, the logits of all its positions: (length,)."""


def vote_released(
    scores: Scores, offsets: Sequence[int], words: Sequence[str], encoded: Encoded
) -> bool:
    """As the released code counts: the position that most placings choose.

    A placing that chooses padding has no vote; of positions with equally many, the one whose first
    vote came last wins. The first position can never be right: the code takes its index, 0, for
    "nothing chosen".
    """
    votes: Counter[int] = Counter()
    for score, offset in zip(scores, offsets, strict=True):
        position = int(score.argmax()) - offset
        if 0 <= position < len(words):
            votes[position] += 1
    if not votes:
        return False
    most = max(votes.values())
    chosen = [position for position, count in votes.items() if count == most][-1]
    return chosen != 0 and bool(encoded.targets[chosen] == ANSWER)


def vote_clean(
    scores: Scores, offsets: Sequence[int], words: Sequence[str], encoded: Encoded
) -> bool:
    """The word whose places have the largest probability together, over all placings.

    Padding and the mask's place are not candidates.
    """
    context = words[:-1]
    sums: Counter[str] = Counter()
    for score, offset in zip(scores, offsets, strict=True):
        part = score[offset : offset + len(context)].astype(np.float64)
        for word, share in zip(context, softmax(part), strict=True):
            sums[word] += share
    return sums.most_common(1)[0][0] == words[-1]
