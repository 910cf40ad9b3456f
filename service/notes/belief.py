"""Which instruments are playing: a slowly changing belief that stabilises the naming of notes.

A note has evidence e_c for each class c of instruments: the mean logarithm of the network's
probabilities of that class at the frames about the note's onset, of which the nearest count most.
The belief keeps a weight w_c for each class, its recent notes. With K classes to choose from::

    prior       b_c = (w_c + prior_notes / K) / (sum of w + prior_notes)
    posterior   q_c = exp(e_c + trust log b_c) / (the same, summed over all classes)
    class       argmax of q; its probability is q there
    afterwards  w_c <- kept w_c + q_c, rounded

This is the predictive distribution of a Dirichlet prior whose counts are forgotten exponentially:
the weights add up to 1 / (1 - kept) notes at most. A class that is sure of itself is heard at its
first note, and an odd note amid many of another class follows them. Where nothing has sounded for
`RESET_S`, the next note begins with no weights: somebody else may play.

``prior_notes``, ``trust`` and ``kept`` are settings, chosen on validation material
(``training.shipping.naming``). The belief depends only on earlier notes. It is rounded, so that a
resume point carries all of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from service.notes.tracker_settings import TrackerSettings

RESET_S = 10.0  # of silence
DIGITS = 4  # behind the point, that weights are kept with


@dataclass(frozen=True, slots=True)
class Belief:
    """The belief about the instruments at one moment.

    Attributes:
        weights: recent notes by class; classes without any are left out.
        frame: the last at which a note began or ended.
    """

    weights: Mapping[str, float] = field(default_factory=dict)
    frame: int = 0

    def share(self, names: tuple[str, ...]) -> float:
        """Share of the weights of these classes, 0 to 1; 0 if there are no weights."""
        total = sum(self.weights.values())
        return sum(self.weights.get(name, 0.0) for name in names) / total if total else 0.0

    def posterior(
        self, classes: tuple[str, ...], evidence: NDArray[np.float64], settings: TrackerSettings
    ) -> NDArray[np.float64]:
        """q of the module's equations, from the evidence for each of the classes."""
        weights = np.array([self.weights.get(name, 0.0) for name in classes])
        shared = settings.belief_prior_notes
        prior = (weights + shared / len(classes)) / (weights.sum() + shared)
        score = evidence + settings.belief_trust * np.log(prior)
        likely = np.exp(score - score.max())
        return likely / likely.sum()

    def after(
        self,
        classes: tuple[str, ...],
        posterior: NDArray[np.float64],
        frame: int,
        settings: TrackerSettings,
    ) -> Belief:
        """The belief after a note with this posterior has begun at the frame."""
        kept = {
            name: round(settings.belief_kept * self.weights.get(name, 0.0) + q, DIGITS)
            for name, q in zip(classes, posterior.tolist(), strict=True)
        }
        return Belief({name: weight for name, weight in kept.items() if weight}, frame)
