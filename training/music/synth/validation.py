"""Validation on instruments and works held out of training."""

from dataclasses import replace

import numpy as np

from training.music.synth.config import SynthConfig
from training.music.synth.dataset import Batch, Excerpt, empty_batch
from training.music.synth.excerpts import (
    Material,
    augmented,
    load_material,
    random_tuning,
    score_excerpt,
)
from training.music.synth.render import Rendered

VALIDATION_PIANO = 0.6
"""Fraction of the ensemble excerpts on a piano; other held-out instruments play the rest."""
WINDOWS_PER_EXCERPT = 8
VALIDATION_EXCERPT_S = 12.0


def render_validation(config: SynthConfig, n_windows: int, seed: int) -> Batch:
    """``n_windows`` windows of validation scores on the held-out instruments; deterministic."""
    rng = np.random.default_rng(seed)
    material = load_material(config, "validation")
    batch = empty_batch(n_windows, config.context)
    for begin in range(0, n_windows, WINDOWS_PER_EXCERPT):
        rendered = _excerpt(material, config, VALIDATION_EXCERPT_S, rng)
        excerpt = Excerpt(rendered, material.bank.sample_rate, rng)
        for row in range(begin, min(begin + WINDOWS_PER_EXCERPT, n_windows)):
            excerpt.write(int(rng.integers(excerpt.positions)), batch, row)
    return batch


def validation_pieces(config: SynthConfig, n: int, seconds: float, seed: int) -> list[Rendered]:
    """``n`` passages of up to ``seconds`` on the held-out instruments; deterministic."""
    rng = np.random.default_rng(seed)
    material = load_material(config, "validation")
    return [_excerpt(material, config, seconds, rng) for _ in range(n)]


def _excerpt(
    material: Material, config: SynthConfig, seconds: float, rng: np.random.Generator
) -> Rendered:
    config = replace(
        config,
        piano_probability=VALIDATION_PIANO,
        string_solo_piano_probability=VALIDATION_PIANO / 2,
    )
    tuning = random_tuning(config, rng)
    dry = score_excerpt(material, config, seconds, tuning, rng, only=config.held_out)
    return replace(dry, audio=augmented(dry.audio, material, config, rng))
