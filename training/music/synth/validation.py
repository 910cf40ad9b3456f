"""Validation on instruments and works held out of training."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from training.music.synth.acoustics.augment import augment
from training.music.synth.config import SynthConfig
from training.music.synth.dataset import Batch, Excerpt, empty_batch
from training.music.synth.excerpts import Material, load_material, random_tuning, score_excerpt
from training.music.synth.render import Rendered

VALIDATION_PIANO = 0.6
"""Fraction of the ensemble excerpts on a piano; other held-out instruments play the rest."""
WINDOWS_PER_EXCERPT = 8
VALIDATION_EXCERPT_S = 12.0


class ValidationPiece(NamedTuple):
    """A long passage for note-level scores and tuning the note tracker."""

    audio: NDArray[np.float32]
    """[samples] at the bank's rate"""
    notes: NDArray[np.float64]
    """[n, 4]: onset and offset in seconds, MIDI pitch, velocity 1..127; by onset"""


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


def validation_pieces(
    config: SynthConfig, n: int, seconds: float, seed: int
) -> list[ValidationPiece]:
    """``n`` passages of up to ``seconds`` on the held-out instruments; deterministic."""
    rng = np.random.default_rng(seed)
    material = load_material(config, "validation")
    pieces = []
    for _ in range(n):
        rendered = _excerpt(material, config, seconds, rng)
        notes = rendered.notes
        table = np.stack([notes.onset, notes.offset, notes.pitch, notes.velocity], axis=1)
        pieces.append(ValidationPiece(rendered.audio, table))
    return pieces


def _excerpt(
    material: Material, config: SynthConfig, seconds: float, rng: np.random.Generator
) -> Rendered:
    config = replace(
        config,
        piano_probability=VALIDATION_PIANO,
        string_solo_piano_probability=VALIDATION_PIANO / 2,
    )
    tuning = random_tuning(config, rng)
    names = config.held_out
    dry = score_excerpt(material, config, seconds, tuning, rng, only=names)
    rate = material.bank.sample_rate
    return replace(
        dry, audio=augment(dry.audio, rate, rng, config.recording, material.surroundings)
    )
