import numpy as np
import pytest

from training.music.synth.material import random_notes


@pytest.mark.parametrize("seed", range(4))
def test_random_notes_are_playable(seed: int) -> None:
    notes = random_notes(20.0, 30, 100, np.random.default_rng(seed))
    assert len(notes) > 5
    assert (np.diff(notes.onset) >= 0).all()
    assert notes.onset.min() >= 0
    assert notes.onset.max() < 20
    assert (notes.offset > notes.onset).all()
    assert notes.pitch.min() >= 30
    assert notes.pitch.max() <= 100
    assert notes.velocity.min() >= 1
    assert notes.velocity.max() <= 127
