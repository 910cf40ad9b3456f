"""How notes are named and the pedal is read, chosen on passages of every family.

The belief's constants (``service.notes.naming``) and the pedal's thresholds. The objective is the
instrument accuracy, a mean over the families, plus half of the mean of the pedal's F1 of frames
with it down and with it up: pianists hold it most of the time, so that the first alone is best
served by "always".
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from model.config import HOP
from model.transcriber import TranscriptionModel
from service.engine.local import LocalComputer
from service.notes.tracker_settings import TrackerSettings
from service.protocol.options import StreamOptions
from training.evaluation.families import Tally
from training.music.synth.config import SynthConfig
from training.shipping.pieces import chosen_passages, heard, listened
from training.shipping.tune import tune

STREAM = StreamOptions(lookahead_ms=100.0, block_frames=16)
PEDAL_WEIGHT = 0.5
SHARES = (0.02, *(i / 20 for i in range(1, 20)))
GRID: dict[str, Sequence[Any]] = {
    "belief_trust": (0.0, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0),
    "belief_kept": (0.8, 0.9, 0.95, 0.97, 0.98, 0.99, 0.995),
    "belief_prior_notes": (0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0),
    "pedal_presence_threshold": (0.02, 0.05, 0.1, 0.2, 0.3, 0.5),
    "pedal_on_threshold": SHARES,
    "pedal_off_threshold": SHARES,
}


def naming_settings(
    transcriber: TranscriptionModel, synth: SynthConfig, count: int, seconds: float
) -> TrackerSettings:
    """The card's settings with the best of GRID on this many passages of each family."""
    families = chosen_passages(synth, count, seconds)
    with LocalComputer(transcriber) as computer:
        played = [
            [(one, heard(computer, one.audio, one.sample_rate, STREAM)) for one in some]
            for some in families.values()
            if any(len(one.notes) for one in some)
        ]
    frame_s, heads = HOP / transcriber.config.sample_rate, transcriber.config.outputs

    def objective(settings: TrackerSettings, _: str) -> float:
        accuracy, whole = [], Tally()
        for some in played:
            tally = Tally()
            for passage, probabilities in some:
                score = listened(settings, probabilities, frame_s, heads)
                for one in (tally, whole):
                    one.add(passage, score.notes, score.pedal)
            accuracy.append(tally.accuracy)
        return float(np.mean(accuracy)) + PEDAL_WEIGHT * float(np.mean(whole.pedal_f1))

    return tune(objective, TrackerSettings.from_card(transcriber.card), GRID)
