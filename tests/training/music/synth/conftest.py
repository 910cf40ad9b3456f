"""Fixture of the bank of recorded notes, and a helper that measures levels."""

import numpy as np
import pytest
from numpy.typing import NDArray

from training.music.synth.bank import Bank, load_bank
from training.music.synth.config import SynthConfig


@pytest.fixture(scope="session")
def bank(synth_config: SynthConfig) -> Bank:
    return load_bank(synth_config.root, synth_config.cache)


def level_db(audio: NDArray[np.float32]) -> float:
    return float(20 * np.log10(np.sqrt(np.mean(audio**2)) + 1e-12))
