"""The real bank and corpus, where they lie beside the checkout."""

import numpy as np
import pytest

from tests.paths import SHARED
from training.music.families import FAMILIES, validation_passages
from training.music.synth.bank import HELD_OUT
from training.music.synth.config import SynthConfig
from training.music.synth.dataset import generate_batches
from training.music.synth.excerpts import load_material

ROOT = SHARED / "synth"

pytestmark = pytest.mark.skipif(
    not (ROOT / "bank_index.json").exists(), reason="needs ../shared/synth"
)


def test_training_and_validation_on_the_real_material(pytestconfig: pytest.Config) -> None:
    assert pytestconfig.cache is not None
    cache = pytestconfig.cache.mkdir("synth")  # decoding takes half a minute: kept between runs
    config = SynthConfig(root=ROOT, cache=cache, pool_excerpts=4)
    material = load_material(config)
    assert set(HELD_OUT) <= set(material.bank.instruments)
    pieces = [piece for group in material.groups.values() for piece in group]
    assert sum(piece.seconds for piece in pieces) > 60 * 3600
    batch = next(generate_batches(config, 32, 0))
    sounding = batch.targets.frame.any(axis=(1, 2))
    assert 0.7 < sounding.mean() <= 1
    polyphony = batch.targets.frame.sum(axis=2)
    assert 1 < polyphony.mean() < 8
    assert np.abs(batch.audio).max() <= 1
    passages = validation_passages(config, 1, 4.0)
    assert passages.keys() == FAMILIES.keys()
