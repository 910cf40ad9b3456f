"""The belief about the instruments in the room."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from model.config import INSTRUMENTS
from service.notes.belief import Belief, BeliefSettings

FEW = ("violin", "viola", "cello")
USUAL = BeliefSettings(prior_notes=2.0, trust=0.5, kept=0.97)


def heard(notes: list[list[float]], classes: tuple[str, ...] = FEW) -> Belief:
    """After notes with these probabilities of the classes."""
    belief = Belief()
    for frame, probabilities in enumerate(notes):
        posterior = belief.posterior(classes, np.log(probabilities), USUAL)
        belief = belief.after(classes, posterior, frame, USUAL)
    return belief


def test_an_odd_note_follows_the_others_but_a_sure_one_is_heard() -> None:
    belief = heard([[0.9, 0.1, 0.01]] * 30)
    assert belief.posterior(FEW, np.log([0.3, 0.5, 0.01]), USUAL).argmax() == 0
    assert heard([]).posterior(FEW, np.log([0.3, 0.5, 0.01]), USUAL).argmax() == 1
    assert belief.posterior(FEW, np.log([0.001, 0.01, 0.99]), USUAL).argmax() == 2


def test_what_is_not_heard_any_more_fades() -> None:
    before = heard([[0.95, 0.01, 0.01]] * 40)
    after = heard([[0.95, 0.01, 0.01]] * 40 + [[0.01, 0.01, 0.95]] * 120)
    assert before.share(("violin",)) > 0.9
    assert after.share(("violin",)) < 0.1
    assert after.share(("cello",)) > 0.9
    assert Belief().share(FEW) == 0


@given(st.lists(st.lists(st.floats(0.001, 1), min_size=18, max_size=18), max_size=40))
def test_weights_stay_within_bounds_and_survive_json(notes: list[list[float]]) -> None:
    belief = heard(notes, INSTRUMENTS)
    assert sum(belief.weights.values()) <= 1 / (1 - USUAL.kept) + 18 * 1e-4
    for weight in belief.weights.values():
        assert weight > 0
        assert float(f"{weight:.4f}") == weight
