"""How notes are named and the pedal is read, chosen on rendered passages.

The belief's constants (``service.notes.naming``) and the pedal's thresholds, on the passages of
``training.evaluation.instruments`` drawn with another seed: validation scores on held-out
instruments. The objective is the instrument accuracy of solos plus that of ensembles plus, of the
pedal, the mean of the F1 of frames with it down and with it up: pianists hold it most of the time,
so that the first alone is best served by "always".
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from model.config import HOP, ModelConfig
from model.transcriber import TranscriptionModel
from service.engine.local import LocalComputer
from service.notes.tracker_settings import TrackerSettings
from service.protocol.options import StreamOptions
from training.evaluation.instruments import Tally, rendered_passages
from training.music.families import Passage
from training.music.synth.config import SynthConfig
from training.shipping.pieces import heard, listened
from training.shipping.tune import tune

STREAM = StreamOptions(lookahead_ms=100.0, block_frames=16)
SHARES = (0.02, *(i / 20 for i in range(1, 20)))
GRID: dict[str, Sequence[Any]] = {
    "belief_trust": (0.0, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0),
    "belief_kept": (0.8, 0.9, 0.95, 0.97, 0.98, 0.99, 0.995),
    "belief_prior_notes": (0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0),
    "pedal_presence_threshold": (0.02, 0.05, 0.1, 0.2, 0.3, 0.5),
    "pedal_on_threshold": SHARES,
    "pedal_off_threshold": SHARES,
}


Heard = Sequence[tuple[Passage, NDArray[np.float16]]]
"""Passages as the network hears them, [heads, frames, PITCHES]."""


def heard_passages(
    transcriber: TranscriptionModel, synth: SynthConfig, passages: int, seconds: float
) -> Heard:
    """passages: of each held-out instrument; seconds: of a passage, at most."""
    with LocalComputer(transcriber) as computer:
        return [
            (one, heard(computer, one.audio, one.sample_rate, STREAM))
            for one in rendered_passages(synth, passages, seconds)
        ]


def objective(passages: Heard, config: ModelConfig, settings: TrackerSettings) -> float:
    """See the module; what no passage has counts 0."""
    tallies = {kind: Tally() for kind in ("solo", "ensemble", "piano")}
    for passage, probabilities in passages:
        score = listened(settings, probabilities, HOP / config.sample_rate, config.heads)
        tallies[passage.name].add(passage, score.notes, score.pedal)
    named = tallies["solo"].accuracy + tallies["ensemble"].accuracy
    return named + float(np.mean(tallies["piano"].pedal_f1))


def naming_settings(
    transcriber: TranscriptionModel, synth: SynthConfig, passages: int, seconds: float
) -> TrackerSettings:
    """The settings in the card of the weights, with the best of GRID."""
    other = replace(synth, seed=synth.seed + 1)
    played = heard_passages(transcriber, other, passages, seconds)
    start = TrackerSettings.from_card(transcriber.card)
    judge = partial(objective, played, transcriber.config)
    return tune(lambda settings, _: judge(settings), start, GRID)
